"""Cases of recurrence.lightning.

Kernels want a head_dim of 32, 64 or 128, and a GPU compiles one for each; numbers come from
seeds. Lengths that need several blocks are drawn as such, because nobody meets them by
chance. Which slots requests get follows from one seed for all.
"""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass

from fuzz.strategies.source import Source, choice, flag
from oracle.recurrence.lightning_behaviours import INT32_ELEMENTS, LARGE_BLOCK
from oracle.recurrence.lightning_case import NONE, LightningCase, Request
from oracle.recurrence.lightning_walk import SMALL_BLOCK

MOST_REQUESTS = 3
MOST_TOKENS = 4
MOST_SEED = 2**16
SMALL_SIZES = ((1, 32), (2, 32), (1, 64), (1, 32))  # heads, head_dim
LARGE_SIZE = (1, 128)  # costs sixteen times the smallest: for decode, where some kernels have only it, and two tokens
DTYPES = (("float32", "float32"), ("float32", "float32"), ("bfloat16", "float32"), ("bfloat16", "bfloat16"))


@dataclass(frozen=True)
class Plan:
    """What all requests of a case have in common. ``length``: of a verify; ``short``: two tokens at most. Of a prefill:
    ``blocks``: 0 a few tokens, 1 some small blocks, 2 a large one; ``single``: one token each; ``start``: 0 states,
    1 nothing before, 2 some of each; ``track``: states on the way may be saved."""

    heads: int
    head_dim: int
    scaled: bool
    dtypes: tuple[str, str]
    length: int = 0
    blocks: int = 0
    split: int = 0
    start: int = 0
    single: bool = False
    short: bool = False
    track: bool = False


def structure(source: Source) -> LightningCase:
    """One case; simplest: one request decodes one token."""
    operation = choice(source, ("decode", "verify", "prefill", "accepted"))
    short = operation == "decode" and source.integer(0, 3) == 3
    heads, head_dim = LARGE_SIZE if short else choice(source, SMALL_SIZES)
    plan = Plan(heads, head_dim, flag(source), choice(source, DTYPES), short=short)
    grain = 0.0 if flag(source) else 0.25
    seed, spare, multiplier = source.integer(0, MOST_SEED), 0, "float32"
    if operation == "verify":
        plan = dataclasses.replace(plan, length=source.integer(1, MOST_TOKENS))
        spare = source.integer(0, 2)
    elif operation == "prefill":
        plan, multiplier = _prefill(source, plan), choice(source, ("float32", "tfloat32"))
    far = source.integer(0, 10) if source.integer(0, 3) == 3 else 0

    def request(source: Source) -> Request:
        return _request(source, operation, plan)

    drawn = source.records(request, 1, 1 if plan.blocks == 2 else MOST_REQUESTS)
    slot_seed = source.integer(0, MOST_SEED)
    slots = sum(len(r.slots) + 1 for r in drawn) + 2
    case = LightningCase(
        operation, plan.heads, plan.head_dim, plan.scaled, multiplier, *plan.dtypes, plan.length + spare, slots, 0, 0,
        plan.split, seed, grain, tuple(_with_slots(drawn, slots, slot_seed)),
    )  # fmt: skip
    return _far(case, far)


def _prefill(source: Source, plan: Plan) -> Plan:
    blocks = source.integer(0, 7)  # 4 to 6: some small blocks, 7: now and then a large one
    blocks = 2 if blocks == 7 and flag(source) else 1 if blocks >= 4 else 0
    split = source.integer(1, MOST_TOKENS) if source.integer(0, 3) == 3 else 0
    plan = dataclasses.replace(plan, blocks=blocks, split=split, start=source.integer(0, 2), track=not split)
    if not blocks and source.integer(0, 2) == 2:
        plan = dataclasses.replace(plan, single=True)
        if flag(source):
            plan = dataclasses.replace(plan, heads=LARGE_SIZE[0], head_dim=LARGE_SIZE[1])
    if blocks == 2:
        plan = dataclasses.replace(plan, heads=1, head_dim=64)
    if flag(source):  # what two of the kernels ask for, and nobody meets by chance
        plan = dataclasses.replace(plan, head_dim=64, dtypes=DTYPES[0], scaled=False, track=False)
    return plan


def _request(source: Source, operation: str, plan: Plan) -> Request:
    seed, null = source.integer(0, MOST_SEED), source.integer(0, 5) == 5
    length = plan.length or (1 if plan.single else _length(source, plan.blocks))
    length = min(length, 2) if plan.short else length
    accepted, width, tracked = 1, 1, 0
    if operation == "accepted":
        width = length + source.integer(0, 2)
        accepted = source.integer(1, width) if source.integer(0, 15) < 15 else 0
    slots = (NONE if null else 0,) * width
    if operation != "prefill":
        return Request(seed, length, slots, accepted, True, NONE, 0)
    if source.integer(0, 3) == 3 and plan.track and not null:
        tracked = min(SMALL_BLOCK * source.integer(1, 2), length) if flag(source) else length
    initial = plan.start == 0 or (plan.start == 2 and not flag(source))
    return Request(seed, length, slots, accepted, initial, 0 if tracked else NONE, tracked)


def _length(source: Source, blocks: int) -> int:
    if blocks == 2:
        return LARGE_BLOCK - 2 + source.integer(0, 12)
    return SMALL_BLOCK - 1 + source.integer(0, 34) if blocks else source.integer(1, MOST_TOKENS)


def _with_slots(drawn: list[Request], slots: int, seed: int) -> list[Request]:
    """Give requests their slots where they have some; seed 0 counts upwards. Slot 0 comes last."""
    free = [*range(1, slots), 0]
    if seed:
        random.Random(seed).shuffle(free)
    made = []
    for r in drawn:
        own, track = [free.pop(0) for _ in r.slots], free.pop(0)
        slots = r.slots if r.null else tuple(own)
        made.append(dataclasses.replace(r, slots=slots, track_slot=NONE if r.track_slot == NONE else track))
    return made


def _far(case: LightningCase, far: int) -> LightningCase:
    """``far`` 1 to 10: a gap that carries the upper half of the slots across, or up to,
    the 2^31st element; in a verify, when odd, the same for the scratch rows."""
    if not far:
        return case
    if far % 2 and case.operation == "verify":
        first = INT32_ELEMENTS // (case.cells * case.steps)
        return dataclasses.replace(case, rows_before=max(first - far // 4, 0))
    gap = INT32_ELEMENTS // case.cells - case.slots + far * case.slots // 5
    return dataclasses.replace(case, gap=gap)
