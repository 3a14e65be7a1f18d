"""The case of recurrence.causal_convolution: what is convolved, and what may be asked.

See ``oracle.recurrence.causal_convolution`` for the definition. All numbers follow
from seeds, so dropping or reordering requests leaves the others' numbers alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.contract import DEFENSIVE, FUNCTIONAL, require, require_size
from oracle.recurrence.values import MAX_SEED, draw

OPERATIONS = ("decode", "verify", "accepted", "prefill")
DTYPES = ("float32", "bfloat16", "float16")
ACTIVATIONS = ("none", "silu")
NONE = -1
MAX_ELEMENTS = 2**33  # of one tensor with its unused slots or tokens; faults show beyond 2^31
MAX_REQUESTS = 1024  # each is walked token by token
# Multiples of the grain within the range are integers of at most 6 bits: exact in every dtype, and short sums of their
# products are exact in float32, so that the order of a sum cannot matter.
GRAIN = 1 / 16
RANGE = 2.0  # inputs lie in [-RANGE, RANGE], weights and bias in [-1, 1]


@dataclass(frozen=True)
class Request:
    """One row of the batch.

    slot      slot of the pool; -1 is a null row, which only fills the batch up
    length    tokens of this call
    seed      of the window and of the inputs
    initial   prefill: whether the slot's window is what came before; zeros otherwise
    accepted  accepted form: how many inputs of the call before count, its current token included
    row       verify: scratch row that receives the windows; -1 for a null row
    parents   verify: parent of each token, smaller than its own place, the root's is -1; empty is the chain
    bad       place of a token whose first channel is NaN (defensive); -1 for none
    """

    slot: int
    length: int
    seed: int = 0
    initial: bool = True
    accepted: int = 1
    row: int = NONE
    parents: tuple[int, ...] = ()
    bad: int = NONE


@dataclass(frozen=True)
class CausalConvolutionCase:
    """One call.

    operation     decode (one token), verify (one window per step), accepted (the line of inputs is kept and a count
                  says where to go on), prefill (packed requests of any length)
    channels, width          of the convolution
    bias, activation         activation: none or silu
    input_dtype, state_dtype of inputs, weights and outputs; of the pool and the windows
    steps         tokens of a verify or accepted call at most
    spare         columns of the pool behind those that the call needs
    slots, gap    slots used, and unused ones below their upper half
    scratch_rows  verify: rows of the window scratch
    tokens_before prefill: idle tokens in front of the first request
    window_first  the pool lies in memory as (columns, channels), not (channels, columns)
    overlapping   verify: windows of one scratch row slide over one shared line of inputs
    split         prefill: 0, or the tokens of each request that a first call takes
    exact         inputs are multiples of 1/16
    seed          of weight and bias
    """

    operation: str
    channels: int
    width: int
    bias: bool
    activation: str
    input_dtype: str
    state_dtype: str
    steps: int
    spare: int
    slots: int
    gap: int
    scratch_rows: int
    tokens_before: int
    window_first: bool
    overlapping: bool
    split: int
    exact: bool
    seed: int
    requests: tuple[Request, ...]

    @property
    def columns(self) -> int:
        """Columns of one slot: the window, in the accepted form the last call's inputs, and the spare ones."""
        return self.width - 1 + self.spare + (self.steps - 1 if self.operation == "accepted" else 0)

    @property
    def most_accepted(self) -> int:
        """The largest accepted count whose window still lies inside the slot."""
        return self.columns - self.width + 2


def domain(case: CausalConvolutionCase) -> str:
    """``defensive`` for a NaN input or an accepted count whose window is not in the slot; raises InvalidCase."""
    for name, options in (
        ("operation", OPERATIONS), ("activation", ACTIVATIONS), ("input_dtype", DTYPES), ("state_dtype", DTYPES),
    ):  # fmt: skip
        require(getattr(case, name) in options, f"{name}: must be one of {', '.join(options)}")
    for name, low, high in (
        ("channels", 1, 1024), ("width", 2, 4), ("steps", 1, 16), ("spare", 0, 8), ("slots", 1, 256),
        ("gap", 0, 2**31 - 512), ("scratch_rows", 0, 256), ("tokens_before", 0, 2**31 - 2**16), ("split", 0, 64),
        ("seed", 0, MAX_SEED),
    ):  # fmt: skip
        require(low <= getattr(case, name) <= high, f"{name}: must be {low} to {high}")
    require(bool(case.requests), "requests: must not be empty")
    require(len(case.requests) <= MAX_REQUESTS, f"requests: must be at most {MAX_REQUESTS}")
    require_size(case.requests, "requests", 64 * case.channels)
    require(not (case.gap and case.slots < 2), "gap: needs at least two slots")
    laid_out = (case.slots + case.gap) * case.channels * case.columns
    require(laid_out <= MAX_ELEMENTS, f"gap: a pool of {laid_out} elements, at most {MAX_ELEMENTS} are laid out")
    laid_out = (case.tokens_before + 2**16) * case.channels
    require(laid_out <= MAX_ELEMENTS, f"tokens_before: {laid_out} elements, at most {MAX_ELEMENTS} are laid out")
    for name, operation in (("tokens_before", "prefill"), ("split", "prefill"), ("overlapping", "verify")):
        require(not getattr(case, name) or case.operation == operation, f"{name}: {operation} only")
    require((case.scratch_rows > 0) == (case.operation == "verify"), "scratch_rows: verify has some, others none")
    require(case.steps == 1 or case.operation in ("verify", "accepted"), "steps: 1 outside verify and accepted")
    for i, r in enumerate(case.requests):
        _request(case, r, f"requests[{i}]")
    for name in ("slot", "row"):
        used = [getattr(r, name) for r in case.requests if getattr(r, name) != NONE]
        require(len(set(used)) == len(used), f"requests: two share a {name}")
    require(not (case.overlapping and any(r.parents for r in case.requests)), "overlapping: chains only")
    require(any(r.length for r in case.requests), "requests: no token at all")
    hostile = any(r.bad != NONE or not 1 <= r.accepted <= case.most_accepted for r in case.requests)
    return DEFENSIVE if hostile else FUNCTIONAL


def _request(case: CausalConvolutionCase, r: Request, where: str) -> None:
    low, high = {"decode": (1, 1), "verify": (case.steps, case.steps), "accepted": (0, case.steps), "prefill": (0, 64)}[
        case.operation
    ]
    require(low <= r.length <= high, f"{where}.length: must be {low} to {high}")
    require(NONE <= r.slot < case.slots, f"{where}.slot: must be -1 to slots - 1")
    require(0 <= r.seed <= MAX_SEED, f"{where}.seed: must be 0 to {MAX_SEED}")
    require(r.initial or case.operation == "prefill", f"{where}.initial: others than prefill go on from the window")
    require(r.accepted == 1 or case.operation == "accepted", f"{where}.accepted: 1 outside the accepted form")
    require(0 <= r.accepted <= case.most_accepted + 2, f"{where}.accepted: must be 0 to {case.most_accepted + 2}")
    live = case.operation == "verify" and r.slot != NONE
    require(NONE < r.row < case.scratch_rows if live else r.row == NONE, f"{where}.row: a live row of a verify has one")
    require(not r.parents or live, f"{where}.parents: live rows of a verify only")
    require(len(r.parents) in (0, r.length), f"{where}.parents: one per token")
    require(
        all(p == NONE if t == 0 else 0 <= p < t for t, p in enumerate(r.parents)),
        f"{where}.parents: -1 for the first token, then a place before the token's own",
    )
    require(NONE <= r.bad < r.length and (r.bad == NONE or r.slot != NONE), f"{where}.bad: -1 or a token of a live row")


def parents_of(r: Request) -> tuple[int, ...]:
    """The parent of each token; a chain's are the places before."""
    return r.parents or tuple(range(-1, r.length - 1))


def path_of(r: Request, token: int) -> list[int]:
    """The tokens from the root to ``token``, both included."""
    parents, path = parents_of(r), [token]
    while parents[path[0]] != NONE:
        path.insert(0, parents[path[0]])
    return path


def chosen(case: CausalConvolutionCase, seed: int, name: str, shape: tuple[int, ...], size: float) -> np.ndarray:
    """Numbers in [-size, size] that every dtype of the case holds exactly. Where input and state have different dtypes
    they are multiples of the grain, so that no copy rounds."""
    grain = GRAIN if case.exact or case.input_dtype != case.state_dtype else 0.0
    return draw(seed, name, shape, case.input_dtype, -size, size, grain)


def weights(case: CausalConvolutionCase) -> tuple[np.ndarray, np.ndarray]:
    """Weight [channels, width] and bias [channels] (zeros without one)."""
    weight = chosen(case, case.seed, "weight", (case.channels, case.width), 1.0)
    bias = chosen(case, case.seed, "bias", (case.channels,), 1.0)
    return weight, bias if case.bias else np.zeros_like(bias)


def line_of(case: CausalConvolutionCase, r: Request) -> np.ndarray:
    """What a request's slot holds before the call, [channels, columns]."""
    return chosen(case, r.seed, "line", (case.channels, case.columns), RANGE)


def inputs_of(case: CausalConvolutionCase, r: Request) -> np.ndarray:
    """A request's inputs, [length, channels]; a bad token is not NaN yet."""
    return chosen(case, r.seed, "x", (r.length, case.channels), RANGE)


def columns(case: CausalConvolutionCase) -> dict[str, Any]:
    """The scalars as they are and, for B requests and T tokens packed one request after the other: ``x`` float64
    [T, channels], ``lines`` [B, channels, columns], ``weight``, ``bias_values``, int64 [B] arrays of the request fields
    and ``parents`` [B, longest] (-2 behind a request's
    tokens); ``branched`` [B]: the request is a tree. ``hostile``: slots of nobody hold NaN."""
    plain = {n: getattr(case, n) for n in CausalConvolutionCase.__dataclass_fields__ if n != "requests"}
    weight, bias = weights(case)
    inputs = [inputs_of(case, r) for r in case.requests]
    for r, x in zip(case.requests, inputs, strict=True):
        if r.bad != NONE:
            x[r.bad, 0] = np.nan
    names = ("slot", "length", "initial", "accepted", "row")
    arrays = {n: np.array([getattr(r, n) for r in case.requests], np.int64) for n in names}
    parents = np.full((len(case.requests), max(r.length for r in case.requests)), -2, np.int64)
    for i, r in enumerate(case.requests):
        parents[i, : r.length] = parents_of(r)
    return plain | arrays | {
        "columns": case.columns,
        "tree": any(r.parents for r in case.requests),
        "branched": np.array([bool(r.parents) for r in case.requests]),
        "hostile": domain(case) == DEFENSIVE,
        "x": np.concatenate(inputs),
        "lines": np.stack([line_of(case, r) for r in case.requests]),
        "weight": weight,
        "bias_values": bias,
        "parents": parents,
    }  # fmt: skip
