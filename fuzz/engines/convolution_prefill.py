"""The calls of a packed prefill, shared by the engines' wrappers: one, or two where the case is split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fuzz.engines.convolution import Convolution, requests_of


@dataclass(frozen=True)
class PrefillCall:
    """One call of a prefill.

    rows     the requests that take part, as (request, first token, token behind the last)
    starts   where each begins in ``x`` and ``out`` [tokens, channels], and where the last one ends
    options  what every wrapper asks for
    """

    rows: list[tuple[int, int, int]]
    starts: list[int]
    x: Any
    out: Any
    options: dict[str, Any]


def prefill_calls(buffers: Convolution, null: int, *, strided_indices: bool) -> list[PrefillCall]:
    """The calls of a prefill: one, or with a split its first tokens and what is left. ``null``: the slot of a null row;
    ``strided_indices``: whether the wrapper takes the stride of its slots into account."""
    case, engine, inputs = buffers.case, buffers.engine, requests_of(buffers.case)
    ends = case.length.tolist()
    parts = [[(i, 0, min(n, case.split or n)) for i, n in enumerate(ends)]]
    rest = [(i, case.split, n) for i, n in enumerate(ends) if case.split and n > case.split]
    calls = []
    for number, rows in enumerate([*parts, rest] if rest else parts):
        x, starts = buffers.packed([inputs[i][first:last] for i, first, last in rows])
        places = [i for i, _, _ in rows]
        initial = [number > 0 or bool(case.initial[i]) for i in places]
        options = {
            "query_start_loc": engine.tensor(starts, "int32", contiguous=True),
            "cache_indices": engine.tensor(buffers.slots(places, null), "int32", contiguous=not strided_indices),
            "has_initial_state": engine.tensor(initial, "bool", contiguous=True),
        }
        buffers.watch(x[starts[0] :], *options.values())
        options["activation"] = buffers.activation
        calls.append(PrefillCall(rows, starts, x, buffers.output_like(x, starts), options))
    return calls


def prefill_outputs(buffers: Convolution, calls: list[PrefillCall], made: list[Any]) -> list[np.ndarray]:
    """The output of each request, [length, channels], from what the calls returned, [channels, tokens]."""
    case = buffers.case
    parts: list[list[np.ndarray]] = [[np.zeros((0, case.channels))] for _ in case.length]
    for call, y in zip(calls, made, strict=True):
        for (i, _, _), first, last in zip(call.rows, call.starts[:-1], call.starts[1:], strict=True):
            parts[i].append(buffers.numbers(y[:, first:last]).T)
    return [np.concatenate(p) for p in parts]
