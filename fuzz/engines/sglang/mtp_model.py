"""A draft model that notes what it is fed, on a CPU and inside a captured graph.

Its proposals and the stamps of its states are those of ``oracle.draft.proposer``. What it
was fed is copied into tensors that live as long as the model: a replayed graph runs no
Python, so nothing else could tell. The number of the run is part of the model, as in
engines that have a model for every step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fuzz.engines.closed import ClosedStub
from oracle.draft.proposer import HIDDEN, PARTS, VOCABULARY, numbers, read, rows

UNTOUCHED = -977  # no token, location, position or stamp

_tables: dict[str, Any] = {}


@dataclass(frozen=True)
class Fed:
    """What one run of the model was fed, a row each: lists of Python numbers."""

    positions: list[int]
    locations: list[int]
    tokens: list[int]
    hidden: list[int]


def logits_of(torch: Any, device: str) -> Any:
    """The proposal rows, float32 [VOCABULARY, VOCABULARY]."""
    if device not in _tables:
        table = torch.zeros(VOCABULARY, VOCABULARY)
        for row, (tokens, logits) in enumerate(rows()):
            table[row, list(tokens)] = torch.tensor(logits)
        _tables[device] = table.to(device)
    return _tables[device]


def states(engine: Any, stamps: list[int]) -> Any:
    """Hidden states, float32 [stamps, HIDDEN]."""
    return engine.torch.tensor([numbers(s) for s in stamps], device=engine.device).view(len(stamps), HIDDEN)


class DraftModel:
    """The ``step``-th run of a draft model, for at most ``most`` rows.

    ``produces`` is the producer number of its states. A state's place is its position, or
    with ``width`` the number of the row among the ``width`` rows of a request.
    """

    def __init__(self, engine: Any, step: int, most: int, *, produces: int, width: int = 0):
        torch = engine.torch
        self._step, self._produces, self._width = step, produces, width
        self._torch, self._logits = torch, logits_of(torch, engine.device)

        def kept(*shape: int) -> Any:
            return torch.full(shape, UNTOUCHED, dtype=torch.float64, device=engine.device)

        self._positions, self._locations, self._tokens = kept(most), kept(most), kept(most)
        self._hidden, self._rows = kept(most, HIDDEN), kept(1)

    def forward(self, input_ids: Any, positions: Any, forward_batch: Any, *_: Any, **__: Any) -> ClosedStub:
        """Logits float32 and hidden states of the rows; of the selected rows alone where
        the caller asks for no more."""
        torch, count, hidden = self._torch, input_ids.shape[0], forward_batch.spec_info.hidden_states
        for kept, fed in (
            (self._tokens, input_ids),
            (self._positions, positions),
            (self._locations, forward_batch.out_cache_loc),
            (self._hidden, hidden),
        ):
            if fed is not None:
                kept[:count].copy_(fed[:count])
        self._rows.fill_(count)
        logits = self._logits[(37 * input_ids.long() + 101 * self._step) % VOCABULARY]
        selected = getattr(forward_batch.spec_info, "select_index", None)
        if selected is not None:
            logits = logits[selected]
        produced = hidden.clone().view(count, HIDDEN // PARTS, PARTS)
        place = torch.arange(count, device=positions.device) % self._width if self._width else positions
        produced[..., 1] = self._produces
        produced[..., 2] = place[:count, None].to(hidden.dtype)
        return ClosedStub("draft output", next_token_logits=logits, hidden_states=produced.view(count, HIDDEN))

    def forget(self) -> None:
        """Make as if the model had never run."""
        for kept in (self._positions, self._locations, self._tokens, self._hidden, self._rows):
            kept.fill_(UNTOUCHED)

    def fed(self) -> Fed:
        """What the last run was fed; no row when there was none."""
        count = max(int(self._rows.item()), 0)
        numbers_of = [kept[:count].long().tolist() for kept in (self._positions, self._locations, self._tokens)]
        return Fed(*numbers_of, [read(state) for state in self._hidden[:count].tolist()])
