"""A case of recurrence.kda_convolution_verify: requests, each with a window of inputs before the convolution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.contract import FUNCTIONAL, require, require_size
from oracle.recurrence.formats import rounded
from oracle.recurrence.values import MAX_SEED, draw

NONE = -1
WIDTH = 4  # weights a channel; the kernels seen know no other
DTYPES = ("float32", "bfloat16")
MAX_SIZE, MAX_STEPS, MAX_REQUESTS, MAX_SLOTS = 64, 16, 16, 64


@dataclass(frozen=True)
class Request:
    """``slot``: where its window and state are kept, -1 for an idle row of the batch. ``row`` of the scratch."""

    seed: int
    slot: int
    row: int


@dataclass(frozen=True)
class KdaConvolutionCase:
    """``steps`` tokens are verified of every request. ``ring``: places of the ring that takes what a fold replays; 0:
    the states themselves are written. ``gate`` "softplus" or "bounded". ``slots`` and ``rows`` there are."""

    key_heads: int
    value_heads: int
    key_size: int
    value_size: int
    steps: int
    ring: int
    gate: str
    bias: bool
    normalise: bool
    input_dtype: str
    weight_dtype: str
    slots: int
    rows: int
    seed: int
    grain: float
    requests: tuple[Request, ...]

    # What the rules of recurrence.kda ask a case for.
    beta_rounded = False
    per_channel = True
    lower_bound = -5.0

    @property
    def used_scale(self) -> float:
        return self.key_size**-0.5

    @property
    def keys(self) -> int:
        """Channels of all keys, or of all queries."""
        return self.key_heads * self.key_size

    @property
    def channels(self) -> int:
        """Queries, keys and values, one after the other."""
        return 2 * self.keys + self.value_heads * self.value_size


def domain(case: KdaConvolutionCase) -> str:
    """Always ``functional``; raises InvalidCase outside the domain."""
    for name in ("key_heads", "value_heads", "key_size", "value_size"):
        require(1 <= getattr(case, name) <= MAX_SIZE, f"{name}: must be 1 to {MAX_SIZE}")
    require(case.value_heads % case.key_heads == 0, "value_heads: must be a multiple of key_heads")
    require(case.key_size & (case.key_size - 1) == 0, "key_size: must be a power of two")
    require(case.channels <= 2**10, "key_heads, value_heads: too many channels together")
    require(WIDTH - 1 <= case.steps <= MAX_STEPS, f"steps: must be {WIDTH - 1} to {MAX_STEPS}")
    require(0 <= case.ring <= 2 * MAX_STEPS, f"ring: must be 0 to {2 * MAX_STEPS}")
    require(case.gate in ("softplus", "bounded"), "gate: must be softplus or bounded")
    require(case.input_dtype in DTYPES, f"input_dtype: must be one of {', '.join(DTYPES)}")
    require(case.weight_dtype in DTYPES, f"weight_dtype: must be one of {', '.join(DTYPES)}")
    require(0 <= case.seed <= MAX_SEED, f"seed: must be 0 to {MAX_SEED}")
    require(case.grain in (0.0, 0.25), "grain: must be 0.0 or 0.25")
    require(1 <= case.slots <= MAX_SLOTS and 1 <= case.rows <= MAX_SLOTS, f"slots, rows: must be 1 to {MAX_SLOTS}")
    require(bool(case.requests), "requests: must not be empty")
    require_size(case.requests, "requests", MAX_STEPS)
    require(len(case.requests) <= MAX_REQUESTS, f"requests: must be at most {MAX_REQUESTS}")
    for i, r in enumerate(case.requests):
        require(0 <= r.seed <= MAX_SEED, f"requests[{i}].seed: must be 0 to {MAX_SEED}")
        require(NONE <= r.slot < case.slots, f"requests[{i}].slot: must be -1 to {case.slots - 1}")
        require(NONE <= r.row < case.rows, f"requests[{i}].row: must be -1 to {case.rows - 1}")
        require((r.slot == NONE) == (r.row == NONE), f"requests[{i}].row: an idle row of the batch has neither")
    for name in ("slot", "row"):
        used = [getattr(r, name) for r in case.requests if r.slot != NONE]
        require(len(set(used)) == len(used), f"requests: each {name} must be used once")
    return FUNCTIONAL


def weights(case: KdaConvolutionCase) -> dict[str, np.ndarray]:
    """``weight`` [channels, 4], ``bias`` [channels] (zeros without one), ``A_log`` [heads], ``dt_bias`` [heads, K]."""
    heads, dtype = case.value_heads, case.weight_dtype
    bias = draw(case.seed, "bias", (case.channels,), dtype, grain=case.grain)
    return {
        "weight": draw(case.seed, "weight", (case.channels, WIDTH), dtype, grain=case.grain),
        "bias": bias if case.bias else np.zeros_like(bias),
        "A_log": draw(case.seed, "A_log", (heads,), "float32", -2.0, 0.5, case.grain),
        "dt_bias": draw(case.seed, "dt_bias", (heads, case.key_size), "float32", grain=case.grain),
    }


def inputs(case: KdaConvolutionCase, r: Request) -> dict[str, np.ndarray]:
    """``x`` [steps, channels] before the convolution, ``line`` [channels, 3] what the slot keeps of it, oldest first,
    gate inputs ``a`` [steps, heads, K], ``b`` [steps, heads], and ``state`` [heads, K, V] (float32)."""
    heads, dtype = case.value_heads, case.input_dtype
    return {
        "x": draw(r.seed, "x", (case.steps, case.channels), dtype, -2.0, 2.0, case.grain),
        "line": draw(r.seed, "line", (case.channels, WIDTH - 1), dtype, -2.0, 2.0, case.grain),
        "a": draw(r.seed, "a", (case.steps, heads, case.key_size), dtype, -2.0, 2.0, case.grain),
        "b": draw(r.seed, "b", (case.steps, heads), dtype, -2.0, 2.0, case.grain),
        "state": rounded(draw(r.seed, "state", (heads, case.key_size, case.value_size), "float32", grain=case.grain),
                         "float32"),
    }  # fmt: skip


def taps(x: np.ndarray, line: np.ndarray) -> np.ndarray:
    """The four inputs that each token's output is made of, oldest first: [steps, channels, 4]."""
    whole = np.concatenate([line.T, x])
    return np.stack([whole[t : t + WIDTH].T for t in range(len(x))])


def columns(case: KdaConvolutionCase) -> dict[str, Any]:
    """Scalars, weights, and per request its tensors with ``slot`` and ``row``."""
    names = [n for n in case.__dataclass_fields__ if n != "requests"]
    batch = [inputs(case, r) | {"slot": r.slot, "row": r.row} for r in case.requests]
    more = {"used_scale": case.used_scale, "lower_bound": case.lower_bound}
    return (
        {n: getattr(case, n) for n in names}
        | more
        | {f"{n}_values": v for n, v in weights(case).items()}
        | {"requests": batch}
    )
