"""The case of recurrence.lightning: what is attended to, and what may be asked.

See ``oracle.recurrence.lightning`` for the definition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.contract import DEFENSIVE, FUNCTIONAL, require
from oracle.recurrence.selective_scan_values import padded
from oracle.recurrence.values import MAX_SEED, draw

NONE = -1
OPERATIONS = ("decode", "verify", "accepted", "prefill")
DTYPES = ("float32", "bfloat16")
MULTIPLIERS = ("float32", "tfloat32")
GRAINS = (0.0, 0.25)  # 0.25: short sums of products are exact in float32
MAX_TOKENS = 512
MAX_SLOTS = 256
MAX_CELLS = 2**20  # of all states of a call: memory of a case
MAX_WORK = 2**21  # cells of the states, or of the weights and inputs, that all requests are computed with
MAX_REQUESTS = 1024
MAX_ELEMENTS = 2**33  # of one tensor with its idle slots or rows; faults show beyond 2^31


@dataclass(frozen=True)
class Request:
    """One row of the batch.

    seed          of its q, k and v
    length        tokens; in ``decode`` one a call, so as many calls
    slots         of the pool: one, in ``accepted`` one for each step of the round before. All
                  -1: a null row, which only fills the batch up
    accepted      ``accepted``: how many tokens of the round before count, so which of
                  ``slots`` holds the state; otherwise 1
    initial       prefill: whether the slot's state is what came before; otherwise nothing did
    track_slot    prefill: slot in which a state on the way is saved; -1: none
    track_length  prefill: tokens after which it is saved; 0 without a track slot
    """

    seed: int
    length: int
    slots: tuple[int, ...]
    accepted: int
    initial: bool
    track_slot: int
    track_length: int

    @property
    def null(self) -> bool:
        """True for a row that only fills the batch up."""
        return all(slot == NONE for slot in self.slots)

    @property
    def source(self) -> int:
        """The slot that holds the state; with nothing accepted, the first."""
        return self.slots[max(self.accepted, 1) - 1]


@dataclass(frozen=True)
class LightningCase:
    """One call; in ``decode`` one for each token of the longest request.

    operation      ``decode``, ``verify`` or ``accepted`` (a chain of drafts), or ``prefill``
    heads, head_dim  sizes; a state is head_dim x head_dim
    scaled         queries are divided by the square root of head_dim
    multiplier     prefill: the format in which products may take float32 numbers
    input_dtype    of q, k, v and the outputs
    state_dtype    of the pool and the verify scratch
    steps          verify: steps that a scratch row has room for; otherwise 0
    slots, gap     slots of the pool; idle slots below its upper half
    rows_before    verify: idle scratch rows before the first request's
    split          prefill: a first call takes this many tokens, a second one the rest; 0: one call
    seed           of the decays and of what the pool holds before
    grain          numbers are multiples of it; 0: of nothing
    """

    operation: str
    heads: int
    head_dim: int
    scaled: bool
    multiplier: str
    input_dtype: str
    state_dtype: str
    steps: int
    slots: int
    gap: int
    rows_before: int
    split: int
    seed: int
    grain: float
    requests: tuple[Request, ...]

    @property
    def entry(self) -> tuple[int, int, int]:
        """Shape of one state: head, key, value."""
        return self.heads, self.head_dim, self.head_dim

    @property
    def cells(self) -> int:
        return self.heads * self.head_dim**2

    @property
    def scale(self) -> float:
        return self.head_dim**-0.5 if self.scaled else 1.0


def domain(case: LightningCase) -> str:
    """``defensive`` when a request has accepted nothing, not even the token before; raises
    InvalidCase outside the domain."""
    for name, options in (
        ("operation", OPERATIONS), ("input_dtype", DTYPES), ("state_dtype", DTYPES), ("grain", GRAINS),
        ("multiplier", MULTIPLIERS),
    ):  # fmt: skip
        require(getattr(case, name) in options, f"{name}: must be one of {', '.join(map(str, options))}")
    for name, low, high in (
        ("heads", 1, 64), ("head_dim", 1, 256), ("steps", 0, 64), ("slots", 1, MAX_SLOTS), ("split", 0, MAX_TOKENS),
        ("gap", 0, 2**31 - MAX_SLOTS - 1), ("rows_before", 0, 2**31 - 2**16 - 1), ("seed", 0, MAX_SEED),
    ):  # fmt: skip
        require(low <= getattr(case, name) <= high, f"{name}: must be {low} to {high}")
    prefill, verify = case.operation == "prefill", case.operation == "verify"
    require(prefill or case.multiplier == "float32", "multiplier: only a prefill multiplies matrices")
    require(prefill or not case.split, "split: prefill only")
    require((case.steps > 0) == verify, "steps: verify has some, others 0")
    require(not case.rows_before or verify, "rows_before: only verify has scratch rows")
    require(not (case.gap and case.slots < 2), "gap: needs at least two slots")
    require(bool(case.requests), "requests: must not be empty")
    require(len(case.requests) <= MAX_REQUESTS, f"requests: must be at most {MAX_REQUESTS}")
    require(case.slots * case.cells <= MAX_CELLS, f"slots: the pool has more than {MAX_CELLS} cells")
    require((case.slots + case.gap) * case.cells <= MAX_ELEMENTS, f"gap: at most {MAX_ELEMENTS} elements are laid out")
    laid_out = (case.rows_before + len(case.requests)) * case.steps * case.cells
    require(laid_out <= MAX_ELEMENTS, f"rows_before: at most {MAX_ELEMENTS} elements are laid out")
    require(len(case.requests) * case.steps * case.cells <= MAX_CELLS, f"steps: scratch of more than {MAX_CELLS} cells")
    for i, request in enumerate(case.requests):
        _request(case, request, f"requests[{i}]")
    work = sum(_work(case, r) for r in case.requests)
    require(work <= MAX_WORK, f"requests: {work} cells are computed, at most {MAX_WORK}")
    used = [s for r in case.requests for s in (*r.slots, r.track_slot) if s != NONE]
    require(len(set(used)) == len(used), "requests: a slot stands twice")
    nothing = any(r.accepted == 0 and not r.null for r in case.requests)
    return DEFENSIVE if nothing else FUNCTIONAL


def _work(case: LightningCase, r: Request) -> int:
    """Cells that ``r`` is computed with; a null row has its inputs all the same."""
    across = max(r.length, case.head_dim) if case.operation == "prefill" else case.head_dim**2
    return case.heads * r.length * across


def _request(case: LightningCase, r: Request, where: str) -> None:
    prefill = case.operation == "prefill"
    longest = case.steps or (MAX_TOKENS if prefill else 64)
    require(0 <= r.seed <= MAX_SEED, f"{where}.seed: must be 0 to {MAX_SEED}")
    require(1 <= r.length <= longest, f"{where}.length: must be 1 to {longest}")
    for name, there in (("slots", r.slots), ("track_slot", (r.track_slot,))):
        require(all(NONE <= s < case.slots for s in there), f"{where}.{name}: must be -1 to {case.slots - 1}")
    if case.operation == "accepted":
        require(r.length <= len(r.slots) <= 64, f"{where}.slots: must be at least length, at most 64")
        require(0 <= r.accepted <= len(r.slots), f"{where}.accepted: must be 0 to {len(r.slots)}")
        require(r.null or NONE not in r.slots, f"{where}.slots: all of them or none")
    else:
        require(len(r.slots) == 1, f"{where}.slots: must be one slot")
        require(r.accepted == 1, f"{where}.accepted: must be 1")
    require(r.initial or prefill, f"{where}.initial: only a prefill may start from nothing")
    require((r.track_slot == NONE) == (r.track_length == 0), f"{where}.track_length: goes with a track slot")
    tracks = prefill and not case.split and not r.null
    require(tracks or r.track_slot == NONE, f"{where}.track_slot: of a prefill in one call, with a slot")
    require(0 <= r.track_length <= r.length, f"{where}.track_length: must be at most length")
    if case.operation == "verify":
        require(r.length == case.requests[0].length, f"{where}.length: all requests of a verify have the same")


def decays(case: LightningCase) -> np.ndarray:
    """How much each head forgets a token, [heads], 0 to 1."""
    return draw(case.seed, "decay", (case.heads,), "float32", 0.0, 1.0, case.grain)


def tokens(case: LightningCase, r: Request) -> dict[str, np.ndarray]:
    """``q``, ``k``, ``v`` of the request, [T, heads, head_dim]."""
    shape = (r.length, case.heads, case.head_dim)
    return {n: draw(r.seed, n, shape, case.input_dtype, grain=case.grain) for n in "qkv"}


def slot_state(case: LightningCase, slot: int) -> np.ndarray:
    """What the pool holds in ``slot`` before the call, [heads, head_dim, head_dim]."""
    return draw(case.seed, f"slot {slot}", case.entry, case.state_dtype, grain=case.grain)


def columns(case: LightningCase) -> dict[str, Any]:
    """The case's scalars as they are, without its seed, ``scale``, and

    length, accepted, initial, track_slot, track_length  int64 [B]
    slot      int64 [B, W], -1 beyond a request's own
    start     int64 [B + 1], first token of each request in the tensors below
    q, k, v   float64 [T, heads, head_dim], all tokens of all requests
    decay     float64 [heads]
    pool      float64 [slots, heads, head_dim, head_dim]
    """
    plain = {n: getattr(case, n) for n in case.__dataclass_fields__ if n not in ("requests", "seed")}
    names = [n for n in Request.__dataclass_fields__ if n not in ("seed", "slots")]
    arrays = {n: np.array([int(getattr(r, n)) for r in case.requests], np.int64) for n in names}
    arrays["slot"] = padded([r.slots for r in case.requests])
    arrays["start"] = np.concatenate([[0], np.cumsum(arrays["length"])])
    brought = [tokens(case, r) for r in case.requests]
    arrays |= {n: np.concatenate([b[n] for b in brought]) for n in "qkv"}
    arrays["decay"] = decays(case)
    arrays["pool"] = np.stack([slot_state(case, s) for s in range(case.slots)])
    return plain | {"scale": case.scale} | arrays
