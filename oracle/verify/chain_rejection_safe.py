"""Defensive requests of verify.chain_rejection: what is safe when there is no right answer."""

from __future__ import annotations

from typing import Any

from oracle.legal import Between, OneOf
from oracle.verify.chain_rejection_case import Request, drafted, has_mass, target_row
from oracle.verify.rows import Row, value

MAX_NAMED = 4096  # tokens of a row that are named one by one


def safe(r: Request, vocabulary: int) -> dict[str, Any]:
    """What a defensive request may lead to: any count of drafts that may be kept, any token that may be emitted.

    A draft may be kept when it is a token and its target row gives it mass or gives none to any token.
    """
    kept = 0
    while kept < drafted(r):
        d = r.drafts[kept]
        inside = 0 <= d.token < vocabulary
        if not inside or (_has_any(d.p, vocabulary) and not has_mass(value(d.p, d.token))):
            break
        kept += 1
    drafts = [d.token for d in r.drafts[:kept]]
    tokens = _emittable([target_row(r, j) for j in range(kept + 1)], vocabulary)
    return {
        "accepted": Between(0, kept),
        "path": OneOf(tuple(list(range(a + 1)) for a in range(kept + 1))),
        "accepted_drafts": OneOf(tuple(drafts[:a] for a in range(kept + 1))),
        "bonus_token": tokens,
        "race_token": tokens,
    }


def _has_any(row: Row, vocabulary: int) -> bool:
    return any(has_mass(m.value) for m in row.masses) or (len(row.masses) < vocabulary and has_mass(row.rest))


def _emittable(rows: list[Row], vocabulary: int) -> OneOf | Between:
    """Tokens with mass in one of the rows; all where a row has none, or where they are too many to name."""
    everything = Between(0, vocabulary - 1)
    tokens: set[int] = set()
    for row in rows:
        if not _has_any(row, vocabulary):
            return everything
        named = {m.token: m.value for m in row.masses}
        if has_mass(row.rest) and vocabulary > MAX_NAMED:
            return everything
        tokens |= {t for t, v in named.items() if has_mass(v)}
        if has_mass(row.rest):
            tokens |= set(range(vocabulary)) - set(named)
    return OneOf(tuple(sorted(tokens)))
