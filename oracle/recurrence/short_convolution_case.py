"""The case of recurrence.short_convolution: what is convolved, and what may be asked.

See ``oracle.recurrence.short_convolution`` for the definition. All numbers follow from seeds, so dropping or reordering
requests leaves the others' numbers alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.contract import DEFENSIVE, FUNCTIONAL, require, require_size
from oracle.recurrence.formats import rounded
from oracle.recurrence.values import MAX_SEED, draw

# What each form of the layer is used for.
OPERATIONS = {
    "gated": ("decode", "prefill"),
    "own_residual": ("decode", "verify", "prefill"),
    "other_residual": ("decode", "verify"),
    "plain": ("decode", "prefill"),
}
FORMS = tuple(OPERATIONS)
DTYPES = ("float32", "bfloat16", "float16")
ACTIVATIONS = ("none", "silu")
NONE = -1
MAX_REACH = 16
MAX_ELEMENTS = 2**33  # of the pool with its unused slots; faults show beyond 2^31
MAX_REQUESTS = 1024  # each is walked token by token
GRAIN = 1 / 16  # exact numbers: multiples of it, whose short sums of products are exact in float32
RANGE = 2.0


@dataclass(frozen=True)
class Request:
    """One row of the batch.

    slot     slot of the pool; -1 is a null row, which only fills the batch up
    length   tokens of this call
    seed     of the slot's line and of the inputs
    initial  prefill: whether the slot's line is what came before; zeros otherwise
    valid    verify: how many of the tokens are real; those behind are padding
    stale    the line that must not be used (``initial`` false) is NaN (defensive)
    """

    slot: int
    length: int
    seed: int = 0
    initial: bool = True
    valid: int = 1
    stale: bool = False


@dataclass(frozen=True)
class ShortConvolutionCase:
    """One call.

    form        gated, own_residual, other_residual or plain
    operation   decode, verify or prefill, as the form allows
    channels, width, dilation   of the convolution
    activation  none or silu
    dtype       of inputs, weights, pool and outputs
    steps       tokens of a verify
    slots, gap  slots used, and unused ones below their upper half
    exact       inputs are multiples of 1/16
    seed        of the weights
    """

    form: str
    operation: str
    channels: int
    width: int
    dilation: int
    activation: str
    dtype: str
    steps: int
    slots: int
    gap: int
    exact: bool
    seed: int
    requests: tuple[Request, ...]

    @property
    def reach(self) -> int:
        """Inputs before a token that its output depends on: columns of a slot's line."""
        return (self.width - 1) * self.dilation


def domain(case: ShortConvolutionCase) -> str:
    """``defensive`` where a line that must not be used is NaN; raises InvalidCase outside."""
    for name, options in (("form", FORMS), ("activation", ACTIVATIONS), ("dtype", DTYPES)):
        require(getattr(case, name) in options, f"{name}: must be one of {', '.join(options)}")
    require(case.operation in OPERATIONS[case.form], f"operation: must be one of {', '.join(OPERATIONS[case.form])}")
    for name, low, high in (
        ("channels", 1, 2048), ("width", 2, 4), ("dilation", 1, 8), ("steps", 1, 16), ("slots", 1, 256),
        ("gap", 0, 2**31 - 512), ("seed", 0, MAX_SEED),
    ):  # fmt: skip
        require(low <= getattr(case, name) <= high, f"{name}: must be {low} to {high}")
    require(case.reach <= MAX_REACH, f"dilation: (width - 1) * dilation must be at most {MAX_REACH}")
    require(bool(case.requests), "requests: must not be empty")
    require(len(case.requests) <= MAX_REQUESTS, f"requests: must be at most {MAX_REQUESTS}")
    require_size(case.requests, "requests", 64 * case.channels)
    require(not (case.gap and case.slots < 2), "gap: needs at least two slots")
    laid_out = (case.slots + case.gap) * case.channels * case.reach
    require(laid_out <= MAX_ELEMENTS, f"gap: a pool of {laid_out} elements, at most {MAX_ELEMENTS} are laid out")
    require(case.steps == 1 or case.operation == "verify", "steps: 1 outside verify")
    for i, r in enumerate(case.requests):
        _request(case, r, f"requests[{i}]")
    used = [r.slot for r in case.requests if r.slot != NONE]
    require(len(set(used)) == len(used), "requests: two share a slot")
    return DEFENSIVE if any(r.stale for r in case.requests) else FUNCTIONAL


def _request(case: ShortConvolutionCase, r: Request, where: str) -> None:
    low, high = {"decode": (1, 1), "verify": (case.steps, case.steps), "prefill": (1, 64)}[case.operation]
    require(low <= r.length <= high, f"{where}.length: must be {low} to {high}")
    require(NONE <= r.slot < case.slots, f"{where}.slot: must be -1 to slots - 1")
    require(0 <= r.seed <= MAX_SEED, f"{where}.seed: must be 0 to {MAX_SEED}")
    require(r.initial or case.operation == "prefill", f"{where}.initial: others than prefill go on from the line")
    require(not (r.stale and r.initial), f"{where}.stale: only of a line that is not used")
    verify = case.operation == "verify"
    require(0 <= r.valid <= r.length if verify else r.valid == 1, f"{where}.valid: 0 to length in a verify, else 1")


def chosen(case: ShortConvolutionCase, seed: int, name: str, shape: tuple[int, ...], size: float = RANGE) -> np.ndarray:
    """Numbers in [-size, size] that the case's dtype holds exactly."""
    return draw(seed, name, shape, case.dtype, -size, size, GRAIN if case.exact else 0.0)


def weights(case: ShortConvolutionCase) -> np.ndarray:
    """[channels, width]; the last one meets the token itself."""
    return chosen(case, case.seed, "weight", (case.channels, case.width), 1.0)


def line_of(case: ShortConvolutionCase, r: Request) -> np.ndarray:
    """What a request's slot holds before the call, [channels, reach]."""
    return chosen(case, r.seed, "line", (case.channels, case.reach))


def parts_of(case: ShortConvolutionCase, r: Request) -> dict[str, np.ndarray]:
    """``x``, ``before`` and ``behind`` [length, channels]: the input, its gate or residual, and the output's gate."""
    return {name: chosen(case, r.seed, name, (r.length, case.channels)) for name in ("x", "before", "behind")}


def inputs_of(case: ShortConvolutionCase, r: Request) -> np.ndarray:
    """What enters the convolution and the line, [length, channels]: gated, it is rounded as it is stored."""
    parts = parts_of(case, r)
    return rounded(parts["x"] * parts["before"], case.dtype) if case.form == "gated" else parts["x"]


def columns(case: ShortConvolutionCase) -> dict[str, Any]:
    """The scalars as they are, ``reach``, and for B requests with T tokens packed one request after the other: ``x``,
    ``before``, ``behind`` float64 [T, channels], ``lines`` [B, channels, reach], ``weight`` [channels, width] and
    int64 [B] arrays of the request fields."""
    plain = {n: getattr(case, n) for n in ShortConvolutionCase.__dataclass_fields__ if n != "requests"}
    parts = [parts_of(case, r) for r in case.requests]
    names = ("slot", "length", "initial", "valid")
    arrays = {n: np.array([getattr(r, n) for r in case.requests], np.int64) for n in names}
    lines = [line_of(case, r) * (np.nan if r.stale else 1.0) for r in case.requests]
    packed = {n: np.concatenate([p[n] for p in parts]) for n in ("x", "before", "behind")}
    return plain | arrays | packed | {"reach": case.reach, "lines": np.stack(lines), "weight": weights(case)}
