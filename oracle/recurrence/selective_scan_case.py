"""The case of recurrence.selective_scan: what is scanned, and what may be asked.

See ``oracle.recurrence.selective_scan`` for the definition.
"""

from __future__ import annotations

from dataclasses import dataclass

from oracle.contract import DEFENSIVE, FUNCTIONAL, require, require_size
from oracle.recurrence.values import MAX_SEED

NONE = -1
OPERATIONS = ("decode", "verify", "accepted")
DTYPES = ("float32", "bfloat16", "float16")
GRAINS = (0.0, 0.25)  # 0.25: short sums of products are exact in float32
SHIFTS = (0, 24, -24)  # of the time step: softplus is the identity above 20, and vanishes beside 1 far below
MAX_TOKENS = 64
MAX_SLOTS = 256
MAX_CELLS = 2**18  # of all states of a call: memory of a case
MAX_ELEMENTS = 2**33  # of one tensor with its idle slots or rows; faults show beyond 2^31


@dataclass(frozen=True)
class Request:
    """One row of the batch.

    seed          of its x, dt, B, C and z
    length        tokens; in ``decode`` one a call, so as many calls
    slots         where its state may stand: one slot, in ``accepted`` one for each step of
                  the round before. All -1: a null row, which only fills the batch up
    accepted      ``accepted``: how many tokens of the round before count, so which of
                  ``slots`` holds the state; otherwise 1
    destinations  where states go: ``decode`` one slot, ``verify`` none, ``accepted`` one
                  for each entry of ``slots``, -1 for a token whose state nobody keeps
    parents       ``verify`` over a tree: parent of each token, smaller than its own place,
                  -1 for the root, which comes first
    shift         added to every dt
    """

    seed: int
    length: int
    slots: tuple[int, ...]
    accepted: int
    destinations: tuple[int, ...]
    parents: tuple[int, ...]
    shift: int

    @property
    def null(self) -> bool:
        """True for a row that only fills the batch up."""
        return all(slot == NONE for slot in self.slots)

    @property
    def source(self) -> int:
        """The slot that holds the state; with nothing accepted, the first."""
        return self.slots[max(self.accepted, 1) - 1]


@dataclass(frozen=True)
class SelectiveScanCase:
    """One call, or in ``decode`` one for each token of the longest request.

    operation      ``decode``, ``verify`` or ``accepted``
    tree           verify: parents are handed over
    heads, groups  heads share B and C in groups
    head_dim, state_dim  sizes of a head's input and of its state beside it
    tied           A, dt, dt bias and D are one number a head; otherwise one a cell
    gate           outputs are multiplied with silu(z)
    softplus       of dt and its bias; otherwise the sum is taken as it is
    input_dtype    of x, dt, dt bias, B, C, D, z and the outputs; A is float32
    state_dtype    of the pool and the verify scratch
    steps          verify: steps that a scratch row has room for; otherwise 0
    slots, gap     slots of the pool; idle slots below its upper half
    rows_before    verify: idle scratch rows before the first request's
    seed           of weights and of what the pool holds before
    grain          numbers are multiples of it; 0: of nothing
    """

    operation: str
    tree: bool
    heads: int
    groups: int
    head_dim: int
    state_dim: int
    tied: bool
    gate: bool
    softplus: bool
    input_dtype: str
    state_dtype: str
    steps: int
    slots: int
    gap: int
    rows_before: int
    seed: int
    grain: float
    requests: tuple[Request, ...]

    @property
    def entry(self) -> tuple[int, int, int]:
        """Shape of one state: head, head_dim, state_dim."""
        return self.heads, self.head_dim, self.state_dim

    @property
    def cells(self) -> int:
        return self.heads * self.head_dim * self.state_dim


def domain(case: SelectiveScanCase) -> str:
    """``defensive`` when a request has accepted nothing, not even the token before; raises
    InvalidCase outside the domain."""
    for name, options in (
        ("operation", OPERATIONS), ("input_dtype", DTYPES), ("state_dtype", DTYPES), ("grain", GRAINS),
    ):  # fmt: skip
        require(getattr(case, name) in options, f"{name}: must be one of {', '.join(map(str, options))}")
    for name, low, high in (
        ("heads", 1, 64), ("groups", 1, 64), ("head_dim", 1, 256), ("state_dim", 1, 256), ("steps", 0, MAX_TOKENS),
        ("slots", 1, MAX_SLOTS), ("gap", 0, 2**31 - MAX_SLOTS - 1), ("rows_before", 0, 2**31 - 2**16 - 1),
        ("seed", 0, MAX_SEED),
    ):  # fmt: skip
        require(low <= getattr(case, name) <= high, f"{name}: must be {low} to {high}")
    require(case.heads % case.groups == 0, "groups: must divide heads")
    require(not case.tree or case.operation == "verify", "tree: only a verify has one")
    require((case.steps > 0) == (case.operation == "verify"), "steps: verify has some, others 0")
    require(not case.rows_before or case.operation == "verify", "rows_before: only verify has scratch rows")
    require(not (case.gap and case.slots < 2), "gap: needs at least two slots")
    require(bool(case.requests), "requests: must not be empty")
    require_size(case.requests, "requests", MAX_TOKENS)
    require(case.slots * case.cells <= MAX_CELLS, f"slots: the pool has more than {MAX_CELLS} cells")
    require((case.slots + case.gap) * case.cells <= MAX_ELEMENTS, f"gap: at most {MAX_ELEMENTS} elements are laid out")
    rows = case.rows_before + len(case.requests)
    laid_out = rows * case.steps * case.cells
    require(laid_out <= MAX_ELEMENTS, f"rows_before: at most {MAX_ELEMENTS} elements are laid out")
    for i, request in enumerate(case.requests):
        _request(case, request, f"requests[{i}]")
    tokens = sum(max(r.length, case.steps) for r in case.requests)
    require(tokens * case.cells <= MAX_CELLS, f"requests: at most {MAX_CELLS} cells of states are computed")
    owners = [{s for s in (*r.slots, *r.destinations) if s != NONE} for r in case.requests]
    require(len(set().union(*owners)) == sum(map(len, owners)), "requests: two of them share a slot")
    nothing = any(r.accepted == 0 and not r.null for r in case.requests)
    return DEFENSIVE if nothing else FUNCTIONAL


def _request(case: SelectiveScanCase, r: Request, where: str) -> None:
    require(0 <= r.seed <= MAX_SEED, f"{where}.seed: must be 0 to {MAX_SEED}")
    require(1 <= r.length <= (case.steps or MAX_TOKENS), f"{where}.length: must be 1 to {case.steps or MAX_TOKENS}")
    require(r.shift in SHIFTS, f"{where}.shift: must be one of {', '.join(map(str, SHIFTS))}")
    require(case.softplus or r.shift >= 0, f"{where}.shift: below 0 only with softplus")
    for name in ("slots", "destinations"):
        there = getattr(r, name)
        require(all(NONE <= s < case.slots for s in there), f"{where}.{name}: must be -1 to {case.slots - 1}")
        used = [s for s in there if s != NONE]
        require(len(set(used)) == len(used), f"{where}.{name}: a slot stands twice")
    kept = {"decode": 1, "verify": 0, "accepted": len(r.slots)}[case.operation]
    require(len(r.destinations) == kept, f"{where}.destinations: must be {kept} slots")
    if case.operation == "accepted":
        require(r.length <= len(r.slots) <= MAX_TOKENS, f"{where}.slots: must be at least length, at most {MAX_TOKENS}")
        require(0 <= r.accepted <= len(r.slots), f"{where}.accepted: must be 0 to {len(r.slots)}")
        whole = r.null or NONE not in r.slots
        require(whole, f"{where}.slots: all of them or none")
    else:
        require(len(r.slots) == 1, f"{where}.slots: must be one slot")
        require(r.accepted == 1, f"{where}.accepted: must be 1")
        stored = case.operation == "verify" or r.null or r.destinations[0] != NONE
        require(stored, f"{where}.destinations: needs a slot")
    require(not r.null or all(s == NONE for s in r.destinations), f"{where}.destinations: a null row has none")
    if case.operation == "verify":
        require(r.length == case.requests[0].length, f"{where}.length: all requests of a verify have the same")
    if not case.tree:
        require(not r.parents, f"{where}.parents: of a tree only")
        return
    rooted = len(r.parents) == r.length and r.parents[0] == NONE
    require(rooted, f"{where}.parents: one for each token, the first is -1")
    earlier = all(0 <= p < t for t, p in enumerate(r.parents) if t)
    require(earlier, f"{where}.parents: must be smaller than their children")
