"""Cases of recurrence.selective_scan.

Sizes come from a small palette, because a GPU compiles a kernel for each; numbers come
from seeds. A request draws what it is; which slots it gets follows from one seed for
all, because requests that draw slots collide. Offsets beyond 2^31 elements come from a
gap of idle slots or rows just large enough.
"""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass

from fuzz.strategies.source import Source, choice, flag
from oracle.recurrence.selective_scan_behaviours import INT32_ELEMENTS
from oracle.recurrence.selective_scan_case import NONE, SHIFTS, Request, SelectiveScanCase

MOST_REQUESTS = 4
MOST_TOKENS = 5
MOST_SEED = 2**16
SIZES = ((1, 1, 4, 4), (2, 1, 4, 8), (4, 2, 8, 4), (2, 2, 4, 20), (2, 1, 36, 4))  # heads, groups, head_dim, state_dim
DTYPES = (("float32", "float32"), ("bfloat16", "float32"), ("bfloat16", "bfloat16"), ("float32", "float16"))


@dataclass(frozen=True)
class Drawn:
    """A request before it has slots. ``own`` and ``others``: how many it has, and how
    many more for its destinations; ``dropped``: the destination that is left out."""

    request: Request
    own: int
    others: int
    dropped: int
    null: bool


def structure(source: Source) -> SelectiveScanCase:
    """One case; simplest: one request decodes one token."""
    operation = choice(source, ("decode", "verify", "accepted"))
    heads, groups, head_dim, state_dim = choice(source, SIZES)
    input_dtype, state_dtype = choice(source, DTYPES)
    grain = 0.0 if flag(source) else 0.25
    tied, gate, softplus = not flag(source), flag(source), not flag(source)
    seed = source.integer(0, MOST_SEED)
    tree = operation == "verify" and flag(source)
    length = source.integer(1, MOST_TOKENS) if operation == "verify" else 0
    spare = source.integer(0, 2) if operation == "verify" else 0
    far = source.integer(0, 10) if source.integer(0, 7) == 7 else 0

    def request(source: Source) -> Drawn:
        return _request(source, operation, tree, length, SHIFTS if softplus else SHIFTS[:2])

    drawn = source.records(request, 1, MOST_REQUESTS)
    slot_seed = source.integer(0, MOST_SEED)
    slots = sum(d.own + d.others for d in drawn) + 2
    case = SelectiveScanCase(
        operation, tree, heads, groups, head_dim, state_dim, tied, gate, softplus, input_dtype, state_dtype,
        length + spare, slots, 0, 0, seed, grain, tuple(_with_slots(operation, drawn, slots, slot_seed)),
    )  # fmt: skip
    return _far(case, far)


def _request(source: Source, operation: str, tree: bool, length: int, shifts: tuple[int, ...]) -> Drawn:
    seed = source.integer(0, MOST_SEED)
    length = length or source.integer(1, MOST_TOKENS)
    parents: tuple[int, ...] = ()
    if tree:
        parents = (NONE, *(t - 1 - source.integer(0, t - 1) for t in range(1, length)))
    own, accepted, dropped = 1, 1, NONE
    if operation == "accepted":
        own = length + source.integer(0, 2)
        accepted = source.integer(1, own) if source.integer(0, 15) < 15 else 0
        dropped = source.integer(0, own) - 1
    others = own if operation != "verify" and source.integer(0, 3) == 3 else 0
    null = source.integer(0, 5) == 5
    shift = choice(source, shifts) if source.integer(0, 3) == 3 else 0
    return Drawn(Request(seed, length, (), accepted, (), parents, shift), own, others, dropped, null)


def _with_slots(operation: str, drawn: list[Drawn], slots: int, seed: int) -> list[Request]:
    """Give requests their slots; seed 0 counts upwards. Slot 0 comes last."""
    free = [*range(1, slots), 0]
    if seed:
        random.Random(seed).shuffle(free)
    made, at = [], 0
    for d in drawn:
        own = tuple(free[at : at + d.own])
        others = tuple(free[at + d.own : at + d.own + d.others])
        at += d.own + d.others
        destinations = others or own
        if d.null:
            own = destinations = (NONE,) * d.own
        destinations = tuple(NONE if i == d.dropped else s for i, s in enumerate(destinations))
        destinations = () if operation == "verify" else destinations
        made.append(dataclasses.replace(d.request, slots=own, destinations=destinations))
    return made


def _far(case: SelectiveScanCase, far: int) -> SelectiveScanCase:
    """``far`` 1 to 10: a gap that carries the upper half of the slots across, or up to,
    the 2^31st element; in a verify, when odd, the same for the scratch rows."""
    if not far:
        return case
    if far % 2 and case.operation == "verify":
        first = INT32_ELEMENTS // (case.cells * case.steps)
        return dataclasses.replace(case, rows_before=max(first - far // 4, 0))
    gap = INT32_ELEMENTS // case.cells - case.slots + far * case.slots // 5
    return dataclasses.replace(case, gap=gap)
