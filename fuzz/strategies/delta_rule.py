"""Cases of the delta rules, for both contracts.

Sizes come from a small palette, because every new one is compiled on a GPU. A request
draws a seed, its tokens and what is odd about it; slots, rows and tables follow from
two seeds of the case, because requests that draw slots collide. Offsets beyond 2^31
elements come from a gap of idle slots or rows that is just large enough.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from math import prod
from typing import Any

from fuzz.strategies import trees
from fuzz.strategies.source import Source, choice, flag
from oracle.recurrence.delta_case import NONE, OPERATIONS, Request

INT32_ELEMENTS = 2**31
# Key heads, value heads, key size, value size: a square, grouped heads, blocks of values, odd sizes, a long value.
SIZES = ((1, 1, 4, 4), (1, 2, 8, 4), (2, 4, 4, 16), (2, 2, 6, 5), (1, 1, 4, 40))
MOST_REQUESTS = 4
MOST_TOKENS = 6
SPARE_STEPS = 2


@dataclass(frozen=True)
class Drawn:
    """What a request draws. ``odd``: 1 a null row, 2 a table with an unkept step, 3 a shared slot."""

    seed: int
    length: int
    parents: tuple[int, ...]
    spare: int
    accepted: int
    odd: int


def fields(source: Source, gates: tuple[str, ...]) -> dict[str, Any]:
    """All fields of a ``DeltaCase``. Simplest: two tokens' worth of exact numbers into one slot."""
    operation = choice(source, OPERATIONS)
    heads = choice(source, SIZES)
    gate = choice(source, gates)
    given = gate == "given"
    far = source.integer(1, 2) if source.integer(0, 15) == 15 else 0
    plain = source.integer(0, 3) == 0
    made: dict[str, Any] = {
        "operation": operation,
        **dict(zip(("key_heads", "value_heads", "key_dim", "value_dim"), heads, strict=True)),
        "input_dtype": "float32" if plain else choice(source, ("float32", "bfloat16", "float16")),
        "state_dtype": "float32" if plain else choice(source, ("float32", "bfloat16")),
        "index_dtype": choice(source, ("int32", "int64")),
        "gate": gate,
        "beta_per_channel": given and source.integer(0, 3) == 3,
        "beta_rounded": not given and flag(source),
        "normalise": flag(source),
        "scale": 0.5 if source.integer(0, 3) == 3 else None,
        "fresh": False,
        "strong_gates": source.integer(0, 3) == 3,
        "short_keys": source.integer(0, 3) == 3,
        "grain": 0.25 if flag(source) else 0.0,
        "split": 0,
        "seed": source.integer(0, 2**16),
    }
    if operation == "prefill":
        made["fresh"] = source.integer(0, 5) == 5
        made["split"] = 0 if made["fresh"] or source.integer(0, 2) else source.integer(1, MOST_TOKENS)
    tree = operation == "verify" and flag(source)
    drawn = source.records(lambda s: _request(s, operation, tree), 1, MOST_REQUESTS)
    return made | _laid_out(made, drawn, far, source.integer(0, 2**16), source.integer(0, 1))


def _request(source: Source, operation: str, tree: bool) -> Drawn:
    length = 1 if operation == "decode" else source.integer(1, MOST_TOKENS)
    odd = source.integer(1, 3) if source.integer(0, 5) == 5 else 0
    if operation in ("prefill", "verify") and source.integer(0, 9) == 9:
        length = 0
    parents = tuple(trees.parents(source, length)) if tree and length else ()
    spare = accepted = 0
    if operation == "accepted":
        spare = source.integer(0, SPARE_STEPS)
        # Both ends and no accepted token at all are where indexing goes wrong.
        accepted = choice(source, (1, length + spare, source.integer(1, length + spare), 1))
        accepted = 0 if source.integer(0, 11) == 11 else accepted
    return Drawn(source.integer(0, 2**16), length, parents, spare, accepted, odd)


def _laid_out(made: dict[str, Any], drawn: list[Drawn], far: int, seed: int, spare_steps: int) -> dict[str, Any]:
    """Slots, rows and tables: seed 0 counts upwards, others mix."""
    verify, accepted = made["operation"] == "verify", made["operation"] == "accepted"
    needed = sum(d.length + d.spare if accepted else 1 for d in drawn)
    slots = 2 * needed + 2
    order = list(range(slots // 2, slots)) + list(range(slots // 2))  # the far half first
    rows = list(range(len(drawn) + 1)) if verify else []
    if seed and far != 1:
        random.Random(seed).shuffle(order)
    if seed:
        random.Random(seed).shuffle(rows)
    requests = []
    for i, one in enumerate(drawn):
        null = one.odd == 1
        table: tuple[int, ...] = ()
        slot = NONE
        if accepted:
            table = tuple(NONE if null else order.pop(0) for _ in range(one.length + one.spare))
            at = max(one.accepted - 1, 0)
            if one.odd == 2:  # the first or the second step has no slot, whichever is not the start
                table = tuple(NONE if j == (0 if at else 1) else s for j, s in enumerate(table))
        elif not null:
            shared = [r.slot for r in requests if r.slot != NONE]
            slot = shared[0] if verify and one.odd == 3 and shared else order.pop(0)
        parents = one.parents
        requests.append(Request(one.seed, one.length, slot, rows[i] if verify else NONE, parents, table, one.accepted))
    if not any(r.length for r in requests):
        first = requests[0]
        parents = (NONE,) if first.parents else ()
        requests[0] = Request(first.seed, 1, first.slot, first.row, parents, first.table, first.accepted)
    steps = max(r.length for r in requests) + spare_steps if verify else 0
    cells = prod(made[n] for n in ("value_heads", "key_dim", "value_dim"))
    return {
        "slots": slots,
        "gap": -(-INT32_ELEMENTS // cells) if far == 1 else 0,
        "rows": len(rows),
        "row_gap": -(-INT32_ELEMENTS // (cells * steps)) if far == 2 and verify else 0,
        "steps": steps,
        "requests": tuple(requests),
    }
