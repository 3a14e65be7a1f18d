"""An engine whose targets are swept on the device and each wrong in one way, written once for torch and NumPy.

``ANSWERS`` holds the wrong answers; a test counts with NumPy what the sweep must find with torch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fuzz import adapter as adapters
from fuzz.adapter import adapter
from fuzz.worker.layout import FILLER

if TYPE_CHECKING:
    from fuzz.supervisor import Launch

ENGINE = "sweep_doubles"
NONE = -1
HALF = 2**15


def right(xp: Any, pre: Any, committed: Any, grid: int) -> tuple[Any, Any]:
    boundary = (pre + committed) // grid * grid
    return committed - 1, xp.where(boundary > pre, boundary - pre - 1, NONE)


def stale(xp: Any, pre: Any, committed: Any, grid: int) -> tuple[Any, Any]:
    """Compares the length before verify with itself."""
    boundary = (pre + committed) // grid * grid
    return committed - 1, xp.where(pre // grid < pre // grid, boundary - pre - 1, NONE)


def at_or_beyond(xp: Any, pre: Any, committed: Any, grid: int) -> tuple[Any, Any]:
    """Crosses with <=: a boundary that pre stands on is saved again, as step -1, or -1 is saved for nothing."""
    boundary = (pre + committed) // grid * grid
    return committed - 1, xp.where(pre <= boundary, boundary - pre, NONE)


def narrow(xp: Any, pre: Any, committed: Any, grid: int) -> tuple[Any, Any]:
    """Computes in 16 bits."""
    post = (pre + committed + HALF) % (2 * HALF) - HALF
    boundary = post // grid * grid
    return committed - 1, xp.where(boundary > pre, boundary - pre - 1, NONE)


def full_block(xp: Any, pre: Any, committed: Any, grid: int) -> tuple[Any, Any]:
    """The current state is the last one of the block."""
    return committed * 0 + committed.max() - 1, right(xp, pre, committed, grid)[1]


ANSWERS = {each.__name__: each for each in (right, stale, at_or_beyond, narrow, full_block)}


def _double(symbol: str, sweep: Callable[[Any, Any], dict[str, Any]]) -> None:
    register = adapter(
        contract="commit.checkpoint_steps", module="double", symbol=symbol, engine=ENGINE,
        observes=("current_step", "checkpoint_step"), needs=(), sweep=sweep,
    )  # fmt: skip
    register(lambda engine, case: {})


def _answering(answer: Callable) -> Callable[[Any, Any], dict[str, Any]]:
    def sweep(engine: Any, rows: Any) -> dict[str, Any]:
        pre, committed = rows.lengths().long(), rows.committed().long()
        with engine.production():
            current, saved = answer(engine.torch, pre, committed, rows.grid)
        return {"current_step": current, "checkpoint_step": saved}

    return sweep


def writes_into_arguments(engine: Any, rows: Any) -> dict[str, Any]:
    """Forgets the lengths it was given, then answers rightly for what is left."""
    pre, committed = rows.lengths(), rows.committed()
    with engine.production():
        pre.zero_()
        current, saved = right(engine.torch, pre.long(), committed.long(), rows.grid)
    return {"current_step": current, "checkpoint_step": saved}


def leaves_rows_out(engine: Any, rows: Any) -> dict[str, Any]:
    """Writes nothing: the memory it got is its answer. Raises when that does not hold poison."""
    with engine.production():
        answers = [engine.torch.empty(rows.count, dtype=engine.torch.int64, device=engine.device) for _ in range(2)]
    for each in answers:
        assert int((each == FILLER).sum()) == rows.count, "memory without poison"
    return dict(zip(("current_step", "checkpoint_step"), answers))


def agrees_with_a_wrong_yardstick(engine: Any, rows: Any) -> dict[str, Any]:
    """Breaks this process's closed form and is wrong in the same way."""
    from fuzz.worker import sweep

    def wrong(torch: Any, pre: Any, committed: Any, grid: int) -> tuple[Any, Any, Any]:
        current, saved = stale(torch, pre, committed, grid)
        return current, saved, saved

    sweep.closed_form = wrong
    return _answering(stale)(engine, rows)


def blamed_by_a_wrong_yardstick(engine: Any, rows: Any) -> dict[str, Any]:
    """Breaks this process's closed form and is right."""
    agrees_with_a_wrong_yardstick(engine, rows)
    return _answering(right)(engine, rows)


def one_value(engine: Any, rows: Any) -> dict[str, Any]:
    return {"current_step": rows.committed() - 1, "checkpoint_step": rows.lengths()[:1]}


def looks_at_the_rows(engine: Any, rows: Any) -> dict[str, Any]:
    """Answers rightly only where everything it is given is contiguous and its own."""
    made = [rows.lengths(), rows.committed(), rows.slots(), rows.nodes()]
    assert all(t.is_contiguous() and 0 not in t.stride() and len(t) == rows.count for t in made)
    assert len({t.data_ptr() for t in made}) == len(made)
    step = engine.torch.arange(rows.draft_tokens, device=engine.device)
    first = rows.slots()[:, None] * rows.draft_tokens
    assert ((made[3] == first + step) == (step < made[1][:, None])).all()
    assert ((made[3] == NONE) == (step >= made[1][:, None])).all()
    return _answering(right)(engine, rows)


for _name, _answer in ANSWERS.items():
    _double(_name, _answering(_answer))
for _sweep in (
    writes_into_arguments, leaves_rows_out, agrees_with_a_wrong_yardstick, blamed_by_a_wrong_yardstick, one_value,
    looks_at_the_rows,
):  # fmt: skip
    _double(_sweep.__name__, _sweep)


def target(symbol: str) -> adapters.Adapter:
    return adapters.registered(ENGINE)[f"{ENGINE}/double/commit.checkpoint_steps/{symbol}"]


def launch(like: Launch | None = None, device: str = "cpu") -> Launch:
    """The doubles in the interpreter of another launch, for its torch; else in this one."""
    from fuzz.supervisor import PROJECT_ROOT, Launch  # a worker imports this module too, and has no supervisor

    path = [str(PROJECT_ROOT), os.environ.get("PYTHONPATH", "")]
    here = Launch(ENGINE, "1.0", sys.executable, {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))})
    return replace(
        like or here, engine=ENGINE, version="1.0", modules=("tests.sweep_doubles",), shims=False, device=device,
        targets=tuple(adapters.registered(ENGINE)), packages={"tests": str(PROJECT_ROOT / "tests")},
    )  # fmt: skip
