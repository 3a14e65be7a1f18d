"""The tensors of a selective scan, from the case's seeds, and the columns that adapters receive.

Everything is float64 and exactly representable in the dtype that the engine is
handed, so both sides start from the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.recurrence.formats import rounded
from oracle.recurrence.selective_scan_case import NONE, Request, SelectiveScanCase
from oracle.recurrence.values import draw


@dataclass(frozen=True)
class Tensors:
    """All tokens of all requests, one after the other [T], and what they share.

    x       [T, heads, head_dim]
    dt      [T, heads] when tied, else [T, heads, head_dim]; the request's shift is in it
    B, C    [T, groups, state_dim]
    z       [T, heads, head_dim]
    A       [heads] when tied, else [heads, head_dim, state_dim]; negative
    dt_bias, D  [heads] when tied, else [heads, head_dim]
    pool    [slots, heads, head_dim, state_dim]
    """

    x: np.ndarray
    dt: np.ndarray
    B: np.ndarray
    C: np.ndarray
    z: np.ndarray
    A: np.ndarray
    dt_bias: np.ndarray
    D: np.ndarray
    pool: np.ndarray


def tensors(case: SelectiveScanCase) -> Tensors:
    """The numbers of ``case``."""
    brought = [_of_request(case, r) for r in case.requests]
    tokens = {name: np.concatenate([b[name] for b in brought]) for name in brought[0]}
    heads, head_dim, _ = case.entry
    per_head = (heads,) if case.tied else (heads, head_dim)
    return Tensors(
        **tokens,
        A=draw(case.seed, "A", (heads,) if case.tied else case.entry, "float32", -1.0, -0.25, case.grain),
        dt_bias=draw(case.seed, "dt_bias", per_head, case.input_dtype, _least_step(case), grain=case.grain),
        D=draw(case.seed, "D", per_head, case.input_dtype, grain=case.grain),
        pool=np.stack([slot_state(case, slot) for slot in range(case.slots)]),
    )


def _of_request(case: SelectiveScanCase, r: Request) -> dict[str, np.ndarray]:
    heads, head_dim, state_dim = case.entry

    def drawn(name: str, *shape: int, low: float = -1.0) -> np.ndarray:
        return draw(r.seed, name, (r.length, *shape), case.input_dtype, low, grain=case.grain)

    dt = drawn("dt", *((heads,) if case.tied else (heads, head_dim)), low=_least_step(case))
    return {
        "x": drawn("x", heads, head_dim),
        "dt": rounded(dt + r.shift, case.input_dtype),
        "B": drawn("B", case.groups, state_dim),
        "C": drawn("C", case.groups, state_dim),
        "z": drawn("z", heads, head_dim),
    }


def _least_step(case: SelectiveScanCase) -> float:
    """Without softplus a time step is positive as it comes, so that states do not grow."""
    return -1.0 if case.softplus else 0.0


def slot_state(case: SelectiveScanCase, slot: int) -> np.ndarray:
    """What the pool holds in ``slot`` before the call, [heads, head_dim, state_dim]."""
    return draw(case.seed, f"slot {slot}", case.entry, case.state_dtype, grain=case.grain)


def parents_of(r: Request) -> tuple[int, ...]:
    """The parent of every token; a chain's are the tokens before."""
    return r.parents or tuple(range(-1, r.length - 1))


def columns(case: SelectiveScanCase) -> dict[str, Any]:
    """The case's scalars as they are, without its seed, and

    length, accepted  int64 [B]
    start             int64 [B + 1], first token of each request in the tensors below
    slot, destination int64 [B, W], -1 beyond a request's own
    parent            int64 [B, longest request], -1 for roots and beyond
    x, dt, B, C, z, A, dt_bias, D, pool   float64, see ``Tensors``
    """
    plain = {n: getattr(case, n) for n in case.__dataclass_fields__ if n not in ("requests", "seed")}
    arrays = {n: np.array([getattr(r, n) for r in case.requests], np.int64) for n in ("length", "accepted")}
    arrays["start"] = np.concatenate([[0], np.cumsum(arrays["length"])])
    arrays["slot"] = padded([r.slots for r in case.requests])
    arrays["destination"] = padded([r.destinations for r in case.requests])
    arrays["parent"] = padded([parents_of(r) for r in case.requests])
    return plain | arrays | vars(tensors(case))


def padded(rows: list[tuple[int, ...]]) -> np.ndarray:
    """Ragged rows as int64 [B, longest], -1 beyond each."""
    width = max(map(len, rows))
    return np.array([[*row, *[NONE] * (width - len(row))] for row in rows], np.int64).reshape(len(rows), width)
