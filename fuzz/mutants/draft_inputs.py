"""Mutants of commit.draft_inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fuzz.mutants.mutant import Mutant
from oracle.commit.draft_inputs import (
    BLOCK,
    PAGES,
    SHIFTED,
    DraftInputsCase,
    Request,
    columns,
    second,
)
from oracle.commit.token_table import location

Observed = dict[str, Any]


def _changed(**fields: Callable[[DraftInputsCase, int, Any], Any]) -> Callable[[DraftInputsCase], Observed]:
    """The right outcome, with fields recomputed a request: (case, row, right value)."""

    def observe(case: DraftInputsCase) -> Observed:
        right = second(case)
        changes = {n: [change(case, i, v) for i, v in enumerate(right[n])] for n, change in fields.items()}
        return right | changes

    return observe


def _recounted(count: Callable[[Request], int]) -> Callable[[DraftInputsCase], Observed]:
    """Everything as if another number of tokens had been committed; the bonus token is the right one."""

    def observe(case: DraftInputsCase) -> Observed:
        wrong = tuple(replace(r, committed=max(1, min(count(r), r.rows))) for r in case.requests)
        seen = second(DraftInputsCase(case.form, case.drafts, case.page, wrong))
        right = columns(case)["bonus"].tolist()
        other = columns(DraftInputsCase(case.form, case.drafts, case.page, wrong))["bonus"].tolist()
        swapped = [[b if t == o else t for t in row] for row, b, o in zip(seen["tokens"], right, other, strict=True)]
        return seen | {"tokens": swapped}

    return observe


def _bonus_row(case: DraftInputsCase, i: int) -> int:
    r = case.requests[i]
    return {SHIFTED: r.committed - 1, "appended": r.committed}.get(case.form, 0)


def _with_bonus(choose: Callable[[DraftInputsCase, int], int]) -> Callable[[DraftInputsCase, int, Any], Any]:
    def change(case: DraftInputsCase, i: int, right: list[int]) -> list[int]:
        at = _bonus_row(case, i)
        return [*right[:at], choose(case, i), *right[at + 1 :]]

    return change


def _slots(page_of: Callable[[DraftInputsCase, int, int], tuple[int, int, int]]) -> Callable[..., Any]:
    """Locations by (request, page number, offset) of a position."""

    def change(case: DraftInputsCase, i: int, right: list[int]) -> list[int]:
        places = [page_of(case, i, p) for p in second(case)["positions"][i]]
        rows = [r.pages for r in case.requests]
        return [location(rows[i], page % PAGES, PAGES) * case.page + offset for i, page, offset in places]

    return change


def _unshifted(case: DraftInputsCase, i: int, right: list[int]) -> list[int]:
    if case.form != SHIFTED:
        return right
    kept = case.requests[i].committed
    return [*columns(case)["block"][i, :kept].tolist(), *right[kept:]]


def _masks_hold_bonus(case: DraftInputsCase, i: int, right: list[int]) -> list[int]:
    at = _bonus_row(case, i)
    return [*right[: at + 1], *[right[at]] * (len(right) - at - 1)]


def _lost_mask(case: DraftInputsCase) -> Observed:
    right = second(case)
    short = [row[:-1] if case.drafts > 1 or case.form == BLOCK else row for row in right["tokens"]]
    return right | {"tokens": short}


MUTANTS = (
    Mutant("keeps_rejected", "missing_check", "feeds the rejected tokens as well", _recounted(lambda r: r.rows)),
    Mutant("one_too_few", "off_by_one", "drops the last committed token", _recounted(lambda r: r.committed - 1)),
    Mutant("one_too_many", "off_by_one", "keeps one rejected token", _recounted(lambda r: r.committed + 1)),
    Mutant("not_shifted", "wrong_token", "feeds each token at its own position", _changed(tokens=_unshifted)),
    Mutant(
        "bonus_of_neighbour",
        "wrong_row",
        "takes the bonus token of the request before",
        _changed(tokens=_with_bonus(lambda case, i: int(columns(case)["bonus"][i - 1]))),
    ),
    Mutant(
        "bonus_is_last_committed",
        "dropped_bonus",
        "feeds the last committed token for the bonus token",
        _changed(tokens=_with_bonus(lambda c, i: int(columns(c)["block"][i, c.requests[i].committed - 1]))),
    ),
    Mutant(
        "masks_hold_bonus", "wrong_token", "fills the masks with the bonus token", _changed(tokens=_masks_hold_bonus)
    ),
    Mutant("lost_mask", "off_by_one", "feeds one mask too few", _lost_mask),
    Mutant(
        "positions_from_block_end",
        "stale_length",
        "goes on behind the rejected tokens",
        _changed(positions=lambda c, i, v: [p + c.requests[i].rows - c.requests[i].committed for p in v]),
    ),
    Mutant(
        "positions_late",
        "off_by_one",
        "positions one too large",
        _changed(positions=lambda c, i, v: [p + 1 for p in v]),
    ),
    Mutant(
        "masks_share_a_position",
        "off_by_one",
        "leaves the masks at the position of the bonus token",
        _changed(positions=lambda c, i, v: [min(p, v[_bonus_row(c, i)]) for p in v]),
    ),
    Mutant(
        "samples_the_first_rows",
        "wrong_row",
        "samples from the first rows of the request",
        _changed(sampled_rows=lambda c, i, v: list(range(c.drafts))),
    ),
    Mutant(
        "samples_one_early",
        "off_by_one",
        "samples one row early",
        _changed(sampled_rows=lambda c, i, v: [max(0, row - 1) for row in v]),
    ),
    Mutant("marks_none", "missing_check", "marks no row as rejected", _changed(rejected_rows=lambda c, i, v: 0)),
    Mutant(
        "marks_one_more", "off_by_one", "marks the last committed row", _changed(rejected_rows=lambda c, i, v: v + 1)
    ),
    Mutant(
        "first_requests_pages",
        "wrong_row",
        "looks locations up in the pages of the first request",
        _changed(locations=_slots(lambda c, i, p: (0, p // c.page, p % c.page))),
    ),
    Mutant(
        "one_page_for_all",
        "stale_page",
        "adds the rows up from the location of the first",
        _changed(locations=lambda c, i, v: [v[0] + k for k in range(len(v))]),
    ),
    Mutant(
        "page_not_divided",
        "wrong_index",
        "takes the position for a page number",
        _changed(locations=_slots(lambda c, i, p: (i, p, p % c.page))),
    ),
    Mutant(
        "offset_lost",
        "wrong_index",
        "puts every token at the start of its page",
        _changed(locations=_slots(lambda c, i, p: (i, p // c.page, 0))),
    ),
    Mutant(
        "context_late",
        "off_by_one",
        "context positions one too large",
        _changed(context_positions=lambda c, i, v: [p + 1 for p in v]),
    ),
    Mutant(
        "context_one_page",
        "stale_page",
        "adds the context up from the location of its first token",
        _changed(context_locations=lambda c, i, v: [v[0] + k for k in range(len(v))] if v else v),
    ),
    Mutant(
        "writes_outside",
        "outside",
        "writes behind its results",
        lambda case: second(case) | {"outside_untouched": False},
    ),
)
