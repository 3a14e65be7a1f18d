"""One block of an exhaustive sweep of commit.checkpoint_steps, where it is computed.

4 * 10^8 rows through a socket would take hours. So a block of rows is made on the device, production answers it there,
and the answers are compared there with a closed form; only counts leave. The trade: the yardstick stands beside what it
measures, in the same library and the same memory. Three things keep both sides from agreeing wrongly:

* What production was given is not read again: the comparison makes the rows a second time, so a call that writes into
  its arguments does not move its own yardstick.
* Memory that the call asks for is filled with poison, so rows that production leaves out hold no right answer of the
  block before, which the allocator would hand out again.
* The closed form here is believed by nobody. The supervisor compares it with the oracle's (operation ``closed_form``)
  and names rows in every block: their answers and what this module thinks of them go back, and the supervisor walks
  them token by token. A closed form that is wrong in the same way as production is wrong against the walk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fuzz.worker.layout import FILLER

FIELDS = ("current_step", "checkpoint_step", "checkpoint_length")  # in the closed form's order
NONE = -1


@dataclass(frozen=True)
class Rows:
    """Every length from ``first`` to ``last`` before verify, with every committed count from 1 to ``draft_tokens``: row
    ``(length - first) * draft_tokens + committed - 1``. Chains, every row tracked. Each call makes a fresh contiguous
    tensor and waits for it, so that the clock of the production call does not pay for it."""

    torch: Any
    device: str
    grid: int
    length_dtype: str
    first: int
    last: int
    draft_tokens: int

    @property
    def count(self) -> int:
        return (self.last - self.first + 1) * self.draft_tokens

    def lengths(self, dtype: str | None = None) -> Any:
        """[rows] tokens before verify."""
        kind = getattr(self.torch, dtype or self.length_dtype)
        each = self.torch.arange(self.first, self.last + 1, dtype=kind, device=self.device)
        return self._made(each[:, None].expand(-1, self.draft_tokens))

    def committed(self, dtype: str = "int32") -> Any:
        """[rows] committed tokens, the current one included."""
        kind = getattr(self.torch, dtype)
        each = self.torch.arange(1, self.draft_tokens + 1, dtype=kind, device=self.device)
        return self._made(each[None].expand(self.last - self.first + 1, -1))

    def slots(self) -> Any:
        """[rows] track slots, int64, a row's own number."""
        return self._made(self.torch.arange(self.count, dtype=self.torch.int64, device=self.device))

    def nodes(self) -> Any:
        """[rows, draft_tokens] accepted nodes, int32: row r has r * draft_tokens + j at step j, then -1."""
        torch, width = self.torch, self.draft_tokens
        nodes = torch.arange(self.count * width, dtype=torch.int32, device=self.device).view(-1, width, width)
        step = torch.arange(width, device=self.device)
        nodes.masked_fill_(step > step[:, None], NONE)  # row c of each [width, width] commits c + 1
        return self._made(nodes).view(-1, width)

    def _made(self, values: Any) -> Any:
        flat = values.reshape(-1).contiguous()  # of one length, reshape leaves a view of stride 0
        if self.device != "cpu":
            self.torch.cuda.synchronize(self.device)
        return flat


def closed_form(torch: Any, pre: Any, committed: Any, grid: int) -> tuple[Any, Any, Any]:
    """Current step, checkpoint step and checkpoint length of int64 tensors of one shape; -1 where nothing is saved.

    With ``post`` tokens after the commit, ``b`` is the last boundary at or below it; it was reached by this commit if
    it lies beyond ``pre``, and the state that has seen b tokens is that of path step b - pre - 1.
    """
    post = pre + committed
    boundary = torch.div(post, grid, rounding_mode="floor") * grid
    crossed = boundary > pre
    nothing = torch.full_like(pre, NONE)
    return committed - 1, torch.where(crossed, boundary - pre - 1, nothing), torch.where(crossed, boundary, nothing)


def block(engine: Any, adapter: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Sweep one block. The answer has counts, the first diverging row, and for the rows [k, 2] (length, committed) of
    ``request["spot"]`` production's answers and whether they were found wrong. ``misshapen`` instead of all that names
    an answer that has not one value a row."""
    torch = engine.torch
    rows = Rows(
        torch, engine.device, request["grid"], request["length_dtype"], request["first"], request["last"],
        request["commits"],
    )  # fmt: skip
    with _poisoned(torch):
        answers = adapter.sweep(engine, rows)
    pre, committed = rows.lengths("int64"), rows.committed("int64")
    expected = dict(zip(FIELDS, closed_form(torch, pre, committed, rows.grid)))
    names = [name for name in FIELDS if name in adapter.observes]
    bad = {}
    for name in names:
        if tuple(answers[name].shape) != (rows.count,):
            return {"misshapen": f"{name}: {tuple(answers[name].shape)} values for ({rows.count},) rows"}
        bad[name] = answers[name] != expected[name]
    wrong = torch.stack(list(bad.values())).any(dim=0)
    crossing = expected["checkpoint_step"] != NONE
    spot = torch.from_numpy(np.array(request["spot"], dtype=np.int64)).to(engine.device)
    at = (spot[:, 0] - rows.first) * rows.draft_tokens + spot[:, 1] - 1
    return {
        "rows": rows.count,
        "crossing": int(crossing.sum()),
        "diverging": int(wrong.sum()),
        "wrong_not_crossing": int((wrong & ~crossing).sum()),
        "first": _first(rows, wrong, bad, expected, answers),
        "spot": {name: _array(answers[name][at]) for name in names},
        "spot_wrong": {name: _array(bad[name][at]) for name in names},
    }


def form(engine: Any, adapter: Any, request: dict[str, Any]) -> dict[str, Any]:
    """This module's closed form on the device, for rows that the supervisor chose."""
    pre, committed = (engine.torch.from_numpy(np.array(request[n])).to(engine.device) for n in ("pre", "committed"))
    values = closed_form(engine.torch, pre, committed, request["grid"])
    return {"values": {name: _array(each) for name, each in zip(FIELDS, values)}}


def _poisoned(torch: Any) -> Any:
    """A context in which tensors that are made without values hold FILLER, where their type can."""
    empty = {torch.empty, torch.empty_like, torch.empty_strided, torch.Tensor.new_empty}

    class Poisoned(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = function(*args, **(kwargs or {}))
            if function in empty and made.dtype.is_signed and made.dtype.itemsize > 1:
                made.fill_(FILLER)
            return made

    return Poisoned()


def _first(rows: Rows, wrong: Any, bad: dict, expected: dict, answers: dict) -> dict[str, Any] | None:
    """The first row that diverges, by length and then by committed count."""
    found = rows.torch.nonzero(wrong)
    if not len(found):
        return None
    i = int(found[0, 0])
    name = next(name for name in bad if bool(bad[name][i]))
    length, committed = divmod(i, rows.draft_tokens)
    return {
        "grid": rows.grid, "length_dtype": rows.length_dtype, "pre": rows.first + length, "committed": committed + 1,
        "field": name, "expected": int(expected[name][i]), "observed": int(answers[name][i]),
    }  # fmt: skip


def _array(values: Any) -> np.ndarray:
    return values.cpu().numpy()


OPERATIONS = {"sweep": block, "closed_form": form}
