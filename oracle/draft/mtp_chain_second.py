"""The second definition of draft.mtp_chain: cell by cell instead of step by step."""

from __future__ import annotations

import numpy as np

from oracle.commit.token_table import location
from oracle.contract import Outcome
from oracle.draft.mtp_chain_case import (
    BEAM,
    FROZEN,
    NOWHERE,
    REQUEST_FIELDS,
    ROUND,
    TABLE_WIDTH,
    WINDOW,
    MtpChainCase,
    Request,
    bonus_of,
    kept_of,
)
from oracle.draft.proposer import NOBODY, proposal, proposals, stamp


def second(case: MtpChainCase) -> Outcome:
    """Cell by cell: what a row holds follows from its step and number alone, by reading one
    line of tokens (``window``) or the tree of continuations (the others) at that place."""
    out: Outcome = {name: [] for name in REQUEST_FIELDS}
    for r in case.requests:
        post, row = r.pre + r.committed, r.pool_row
        if case.form == WINDOW:
            line = kept_of(r)
            for step in range(case.steps):
                line.append(proposal(line[-1], step))
            cells = [[(step, j) for j in range(r.committed)] for step in range(case.steps)]
            made = {
                "positions": [[r.pre + j for _, j in rows] for rows in cells],
                "locations": [[location(row, r.pre + j, TABLE_WIDTH) for _, j in rows] for rows in cells],
                "tokens": [[line[step + j] for step, j in rows] for rows in cells],
                "hidden": [
                    [stamp(ROUND, r.pool_row, step if case.chained else 0, r.pre + j) for step, j in rows]
                    for rows in cells
                ],
                "drafts": line[r.committed :],
            }
        else:
            frozen = case.form == FROZEN
            every = _levels(case, r)
            levels = [[(bonus_of(r), 0)] * case.width, *every[:-1]] if frozen else every[:-1]
            grid = [[(k, b) for b in range(case.width)] for k in range(len(levels))]
            target = stamp(ROUND, r.pool_row, 0, post - 1)
            made = {
                "positions": [[post - 1 if frozen else post + k for k, _ in rows] for rows in grid],
                "locations": [
                    [NOWHERE if frozen else location(row, post + b * case.steps + k, TABLE_WIDTH) for k, b in rows]
                    for rows in grid
                ],
                "tokens": [[levels[k][b][0] for k, b in rows] for rows in grid],
                "hidden": [
                    [stamp(ROUND, r.pool_row, k, levels[k][b][1]) if k else target for k, b in rows] for rows in grid
                ],
                "drafts": [level[0][0] for level in every] if case.width == 1 else [],
            }
        made["stash_owner"] = r.pool_row if case.form == WINDOW and case.captured and case.steps > 1 else NOBODY
        for name, value in made.items():
            out[name].append(value)
    large_enough = [size for size in case.captured if size >= len(case.requests)]
    runs = case.steps - (case.form == BEAM)
    return out | {
        "replayed": [large_enough[0] if large_enough else 0] * runs,
        "padding_inert": True,
        "outside_untouched": True,
    }


def _levels(case: MtpChainCase, r: Request) -> list[list[tuple[int, int]]]:
    """``beams_of`` by whole tables of products."""
    width = case.width

    def table(tokens: list[int], step: int) -> tuple[np.ndarray, np.ndarray]:
        offered = [proposals(token, step)[:width] for token in tokens]
        return np.array([[t for t, _ in row] for row in offered]), np.exp([[p for _, p in row] for row in offered])

    tokens, products = table([bonus_of(r)], 0)
    levels = [[(int(token), 0) for token in tokens[0]]]
    for step in range(1, case.steps):
        offered, more = table([token for token, _ in levels[-1]], step)
        scores = products.reshape(-1, 1) * more
        best = np.argsort(-scores, axis=None)[:width]
        levels.append([(int(offered.flat[at]), int(at) // width) for at in best])
        products = scores.flat[best]
    return levels
