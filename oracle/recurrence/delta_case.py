"""The case of the delta rules: who advances which state over which tokens, and what may be asked.

See ``oracle.recurrence.gated_delta`` for the definition. Numbers come from seeds:
a request's own tensors from its seed, weights and the pool's contents from the
case's, so that dropping or moving a request changes nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from oracle.contract import DEFENSIVE, FUNCTIONAL, require
from oracle.recurrence.values import MAX_SEED

NONE = -1  # no slot, no scratch row, no parent
OPERATIONS = ("prefill", "decode", "verify", "accepted")
INPUTS = ("float32", "bfloat16", "float16")
STATES = ("float32", "bfloat16")
INDICES = ("int32", "int64")
GRAINS = (0.0, 0.25)
MAX_TOKENS = 64  # of a request
MAX_SIDE = 256  # of a key or a value
MAX_HEADS = 64
MAX_SLOTS = 4096
MAX_REQUESTS = 1024  # rows that do nothing cost time too
MAX_STATE_CELLS = 2**20  # of a pool without its gap, or of all per-step states
MAX_ELEMENTS = 2**33  # of a tensor with its gap; faults show beyond 2^31


@dataclass(frozen=True)
class Request:
    """One row of the batch.

    seed      of its queries, keys, values and gates
    length    its tokens
    slot      its place in the state pool; -1 for a null row, and for ``accepted``
    row       verify: the scratch row that receives its states; -1: none does
    parents   verify: parent of each token, the first has -1; empty for a chain
    table     accepted: the slots of its verify steps; -1: that step is not kept
    accepted  accepted: how many tokens of the previous round count, 1 or more
    """

    seed: int
    length: int
    slot: int
    row: int
    parents: tuple[int, ...]
    table: tuple[int, ...]
    accepted: int


@dataclass(frozen=True)
class DeltaCase:
    """One call.

    operation     ``prefill``, ``decode`` (one token each), ``verify`` or ``accepted``
    key_heads, value_heads, key_dim, value_dim   sizes; value heads share key heads in groups
    input_dtype   of queries, keys, values, gate inputs and outputs
    state_dtype   of the pool and the verify scratch
    index_dtype   of slots, rows and tables: int32 or int64
    gate          ``given`` (decay and beta are inputs) or ``softplus`` (computed in the kernel)
    beta_per_channel   given: one beta per value channel instead of per value head
    beta_rounded  computed: beta is rounded to ``input_dtype`` before it is used
    normalise     queries and keys are divided by their length first
    scale         of the queries; none: 1 / sqrt(key_dim)
    fresh         prefill: nothing comes before, states start from 0
    strong_gates  decays from none to total; otherwise mild ones
    short_keys    queries and keys so short that the normalisation's epsilon matters
    grain         numbers are multiples of it, and short sums exact; 0: they are not
    split         prefill: a first call takes this many tokens, a second one the rest; 0: one call
    seed          of weights and of what the pool holds before
    slots, gap    slots of the pool; idle slots below its upper half
    rows, row_gap scratch rows; idle rows below the first
    steps         verify: steps that a scratch row has room for
    """

    operation: str
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    input_dtype: str
    state_dtype: str
    index_dtype: str
    gate: str
    beta_per_channel: bool
    beta_rounded: bool
    normalise: bool
    scale: float | None
    fresh: bool
    strong_gates: bool
    short_keys: bool
    grain: float
    split: int
    seed: int
    slots: int
    gap: int
    rows: int
    row_gap: int
    steps: int
    requests: tuple[Request, ...]

    @property
    def per_channel(self) -> bool:
        """Whether each key channel has a decay of its own."""
        return False

    @property
    def entry(self) -> tuple[int, int, int]:
        """Shape of one state in the order of this contract: value head, key, value."""
        return self.value_heads, self.key_dim, self.value_dim

    @property
    def lower_bound(self) -> float:
        """The least log decay that a bounded gate can give; 0 where gates are not bounded."""
        return 0.0

    @property
    def tree(self) -> bool:
        """Whether parents are handed over, for all requests then."""
        return any(r.parents for r in self.requests)

    @property
    def used_scale(self) -> float:
        return self.key_dim**-0.5 if self.scale is None else self.scale


def domain(case: DeltaCase, gates: tuple[str, ...]) -> str:
    """``defensive`` when a request has accepted nothing, not even the current token;
    raises InvalidCase outside the domain."""
    _options(case, gates)
    require(len(case.requests) <= MAX_REQUESTS, f"requests: must be at most {MAX_REQUESTS}")
    cells = prod(case.entry)
    require(case.slots * cells <= MAX_STATE_CELLS, f"slots: the pool has more than {MAX_STATE_CELLS} cells")
    tokens = sum(max(r.length, 0) for r in case.requests)
    require(0 < tokens * cells <= MAX_STATE_CELLS, f"requests: need 1 token, and at most {MAX_STATE_CELLS} state cells")
    require((case.slots + case.gap) * cells <= MAX_ELEMENTS, f"gap: at most {MAX_ELEMENTS} elements are laid out")
    scratch = (case.rows + case.row_gap) * case.steps * cells
    require(scratch <= MAX_ELEMENTS, f"row_gap: at most {MAX_ELEMENTS} elements are laid out")
    for i, request in enumerate(case.requests):
        _request(case, request, f"requests[{i}]")
    written = [s for r in case.requests for s in (r.table if case.operation == "accepted" else (r.slot,)) if s != NONE]
    if case.operation != "verify":
        require(len(set(written)) == len(written), "requests: two of them write one slot")
    rows = [r.row for r in case.requests if r.row != NONE]
    require(len(set(rows)) == len(rows), "requests.row: two requests write one scratch row")
    nothing = case.operation == "accepted" and any(r.accepted == 0 and set(r.table) != {NONE} for r in case.requests)
    return DEFENSIVE if nothing else FUNCTIONAL


def _options(case: DeltaCase, gates: tuple[str, ...]) -> None:
    for name, options in (
        ("operation", OPERATIONS), ("input_dtype", INPUTS), ("state_dtype", STATES), ("index_dtype", INDICES),
        ("gate", gates),
    ):  # fmt: skip
        require(getattr(case, name) in options, f"{name}: must be one of {', '.join(options)}")
    for name, low, high in (
        ("key_heads", 1, MAX_HEADS), ("value_heads", 1, MAX_HEADS), ("key_dim", 1, MAX_SIDE),
        ("value_dim", 1, MAX_SIDE), ("split", 0, MAX_TOKENS), ("seed", 0, MAX_SEED), ("slots", 1, MAX_SLOTS),
        ("gap", 0, 2**31 - MAX_SLOTS - 1), ("rows", 0, MAX_SLOTS), ("row_gap", 0, 2**31 - MAX_SLOTS - 1),
        ("steps", 0, MAX_TOKENS),
    ):  # fmt: skip
        require(low <= getattr(case, name) <= high, f"{name}: must be {low} to {high}")
    require(case.value_heads % case.key_heads == 0, "value_heads: must be a multiple of key_heads")
    require(case.scale is None or 2.0**-20 <= case.scale <= 2.0**20, "scale: must be 2^-20 to 2^20, or null")
    require(case.grain in GRAINS, "grain: must be 0 or 0.25")
    require(not (case.gap and case.slots < 2), "gap: needs at least two slots")
    require(case.operation == "prefill" or not (case.fresh or case.split), "fresh, split: only a prefill has them")
    require(not (case.fresh and case.split), "split: the second call starts from a state")
    scratch = case.rows or case.row_gap or case.steps
    require(case.operation == "verify" or not scratch, "rows, row_gap, steps: only verify has scratch")
    require(case.gate == "given" or not case.beta_per_channel, "beta_per_channel: only where beta is given")
    require(case.gate != "given" or not case.beta_rounded, "beta_rounded: only where beta is computed")


def _request(case: DeltaCase, request: Request, where: str) -> None:
    require(0 <= request.seed <= MAX_SEED, f"{where}.seed: must be 0 to 2^31 - 1")
    shortest, longest = (1, 1) if case.operation == "decode" else (0, MAX_TOKENS)
    require(shortest <= request.length <= longest, f"{where}.length: must be {shortest} to {longest}")
    require(NONE <= request.slot < case.slots, f"{where}.slot: must be -1 to slots - 1")
    require(NONE <= request.row < case.rows, f"{where}.row: must be -1 to rows - 1")
    if case.operation == "verify":
        require(request.row != NONE or request.slot == NONE, f"{where}.row: only a null row has none")
        require(request.length <= case.steps, f"{where}.length: must be at most steps")
        _parents(request, f"{where}.parents")
    else:
        require(request.row == NONE and not request.parents, f"{where}: row and parents are of verify")
    if case.operation == "accepted":
        _table(case, request, where)
    else:
        require(not (request.table or request.accepted), f"{where}: table and accepted are of accepted")


def _parents(request: Request, where: str) -> None:
    parents = request.parents
    require(len(parents) in (0, request.length), f"{where}: one for each token, or none for a chain")
    require(not parents or parents[0] == NONE, f"{where}: the first token has -1")
    require(all(0 <= p < t for t, p in enumerate(parents) if t), f"{where}: must be smaller than their children")


def _table(case: DeltaCase, request: Request, where: str) -> None:
    table, accepted = request.table, request.accepted
    require(request.slot == NONE, f"{where}.slot: its slots are in its table")
    require(all(NONE <= s < case.slots for s in table), f"{where}.table: slots must be -1 to slots - 1")
    require(1 <= len(table) <= MAX_TOKENS, f"{where}.table: must have 1 to {MAX_TOKENS} slots")
    require(request.length <= len(table), f"{where}.table: must have a slot for each token")
    require(0 <= accepted <= len(table), f"{where}.accepted: must be 0 to the size of the table")
    begins = table[max(accepted - 1, 0)] != NONE
    require(begins or set(table) == {NONE}, f"{where}.table: the accepted step's slot is -1, so all must be")
