"""Ways in which a chain of drafts can be fed wrongly; ``fuzz.mutants.mtp_chain`` names them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oracle.commit.token_table import location
from oracle.draft.mtp_chain_case import (
    FROZEN,
    ROUND,
    TABLE_WIDTH,
    WINDOW,
    MtpChainCase,
    beams_of,
    bonus_of,
    graph_of,
    kept_of,
    rows_of,
    tokens_of,
)
from oracle.draft.mtp_chain_second import second
from oracle.draft.proposer import NOBODY, proposal, stamp, unstamp

Observed = dict[str, Any]
Cell = Callable[[MtpChainCase, int, int, int, Any], Any]  # case, request, step, row, right value -> observed


def cells(forms: tuple[str, ...], **fields: Cell) -> Callable[[MtpChainCase], Observed | None]:
    """The right outcome with some cells of the rows changed, for cases of ``forms``."""

    def observe(case: MtpChainCase) -> Observed | None:
        if case.form not in forms:
            return None
        right = second(case)
        changed = {
            name: [
                [[change(case, i, k, b, cell) for b, cell in enumerate(rows)] for k, rows in enumerate(steps)]
                for i, steps in enumerate(right[name])
            ]
            for name, change in fields.items()
        }
        return right | changed

    return observe


def states(forms: tuple[str, ...], change: Callable[..., int]) -> Callable[[MtpChainCase], Observed | None]:
    """Stamps of steps after the first: (case, request, step, round, request, producer, place)."""

    def cell(case: MtpChainCase, i: int, k: int, b: int, right: int) -> int:
        return change(case, i, k, b, unstamp(right)) if k else right

    return cells(forms, hidden=cell)


def target_again(case: MtpChainCase, i: int, k: int, b: int, of: tuple[int, ...]) -> int:
    post = case.requests[i].pre + case.requests[i].committed
    return stamp(ROUND, case.requests[i].pool_row, 0, of[3] if case.form == WINDOW else post - 1)


def in_graph(change: Callable[..., int]) -> Callable[..., int]:
    def only(case: MtpChainCase, i: int, k: int, b: int, of: tuple[int, ...]) -> int:
        return change(case, i, k, b, of) if graph_of(case, len(case.requests)) else stamp(*of)

    return only


def next(case: MtpChainCase, i: int) -> int:
    return case.requests[(i + 1) % len(case.requests)].pool_row


def neighbour(case: MtpChainCase, i: int, k: int, b: int, of: tuple[int, ...]) -> int:
    return stamp(of[0], next(case, i), of[2], of[3])


def earlier(case: MtpChainCase, i: int, k: int, b: int, of: tuple[int, ...]) -> int:
    return stamp(0 if case.earlier else of[0], *of[1:])


def two_old(case: MtpChainCase, i: int, k: int, b: int, of: tuple[int, ...]) -> int:
    return stamp(of[0], of[1], max(of[2] - 1, 1) if of[2] else 0, of[3])


def chained_anyway(case: MtpChainCase, i: int, k: int, b: int, of: tuple[int, ...]) -> int:
    return stamp(of[0], of[1], k, of[3])


def row_before(case: MtpChainCase, i: int, k: int, b: int, of: tuple[int, ...]) -> int:
    return stamp(of[0], of[1], of[2], of[3] - (b > 0))


def own_row(case: MtpChainCase, i: int, k: int, b: int, of: tuple[int, ...]) -> int:
    return stamp(*of[:3], b if k > (case.form == FROZEN) else of[3])


def first_row(case: MtpChainCase, i: int, k: int, b: int, of: tuple[int, ...]) -> int:
    return stamp(*of[:3], 0)


def unrotated(case: MtpChainCase, i: int, k: int, b: int, right: int) -> int:
    r = case.requests[i]
    return right if b == r.committed - 1 else kept_of(r)[b]


def eight_rotate(case: MtpChainCase, i: int, k: int, b: int, right: int) -> int:
    """A block of eight rows moves on, what lies behind it stays, and the draft still lands."""
    r = case.requests[i]
    return kept_of(r)[b] if k and 8 <= b < r.committed - 1 else right


def bonus_again(case: MtpChainCase, i: int, k: int, b: int, right: int) -> int:
    r = case.requests[i]
    return bonus_of(r) if k and b == r.committed - 1 else right


def rejected_at_last(case: MtpChainCase, i: int, k: int, b: int, right: int) -> int:
    """The draft lands at the end of the window, rejected rows included."""
    r = case.requests[i]
    predicted = tokens_of(r, rows_of(case.requests, case.steps))
    at = b + k
    return predicted[at] if k and r.committed <= at < len(predicted) else right


def late_draft(case: MtpChainCase, i: int, k: int, b: int, right: int) -> int:
    last = case.requests[i].committed - 1
    return second(case)["drafts"][i][k - 2] if k > 1 and b == last else right


def neighbours_draft(case: MtpChainCase, i: int, k: int, b: int, right: int) -> int:
    last = case.requests[i].committed - 1
    return second(case)["drafts"][i - 1][k - 1] if k and b == last else right


def greedy_rows(case: MtpChainCase, i: int, k: int, b: int, right: int) -> int:
    """Every row goes on with its own best candidate."""
    level = k - (case.form == FROZEN)
    if level < 1 or case.width == 1:
        return right
    rows = [token for token, _ in beams_of(case, case.requests[i])[level - 1]]
    return proposal(rows[b], level)


def place(of: Callable[[MtpChainCase, int, int], int]) -> Cell:
    def cell(case: MtpChainCase, i: int, k: int, b: int, right: int) -> int:
        r = case.requests[i]
        return location(r.pool_row, r.pre + r.committed + of(case, k, b), TABLE_WIDTH)

    return cell


def graph(size: Callable[[MtpChainCase, int], int]) -> Callable[[MtpChainCase], Observed]:
    def observe(case: MtpChainCase) -> Observed:
        right = second(case)
        return right | {"replayed": [size(case, was) for was in right["replayed"]]}

    return observe


def larger(case: MtpChainCase, was: int) -> int:
    return min((size for size in case.captured if size > was), default=was) if was else 0


def stash(owner: Callable[[MtpChainCase, int, int], int]) -> Callable[[MtpChainCase], Observed]:
    """Whose states are kept: (case, request, right owner)."""

    def observe(case: MtpChainCase) -> Observed:
        right = second(case)
        kept = [o if o == NOBODY else owner(case, i, o) for i, o in enumerate(right["stash_owner"])]
        return right | {"stash_owner": kept}

    return observe


def fell_back(case: MtpChainCase) -> bool:
    return graph_of(case, len(case.requests)) == 0


def padding(case: MtpChainCase) -> Observed:
    return second(case) | {"padding_inert": graph_of(case, len(case.requests)) <= len(case.requests)}
