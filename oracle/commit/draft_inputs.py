"""commit.draft_inputs: what a draft model is fed after a verify.

Definition. Request r had N tokens at positions ``pre`` .. ``pre + N - 1`` verified,
its *block*; the first c are committed, and the bonus token follows at
``post = pre + c``. K drafts are to be proposed, those beyond the first, where the
model proposes them at once, from mask tokens. The request's live rows are

* ``shifted`` (a model that sees the target's hidden states): the committed
  positions, each with the token behind it: at ``pre + j`` the token ``block[j + 1]``,
  at the last one the bonus token; then K - 1 masks at the positions that follow;
* ``appended`` (a model of its own): the committed tokens at their positions, the bonus
  token at ``post``, then K - 1 masks;
* ``block`` (the target's states are a context beside): the bonus token at ``post``,
  then K masks;
* ``anchored``: the bonus token at ``post``, then K - 1 masks.

Drafts are sampled from K rows: the one that holds the bonus token and the masks, in
``block`` from the masks alone; ``sampled_rows`` counts live rows of the request from 0.
A token at position x lies in KV at ``pages[x // page] * page + x % page``. The forms
with a context also place it: the committed tokens at their positions.

The rows of rejected tokens hold anything; ``rejected_rows`` are how many are marked so.
Nothing outside the results is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.commit.token_table import POOL_ROWS, location, table, tokens
from oracle.contract import FUNCTIONAL, Contract, Field, Outcome, require, require_size
from oracle.trace import Trace

SHIFTED, APPENDED, BLOCK, ANCHORED = "shifted", "appended", "block", "anchored"
FORMS = (SHIFTED, APPENDED, BLOCK, ANCHORED)
MASK = 151_936  # no token of a block
MAX_ROWS = 128
MAX_DRAFTS = 32
PAGES = 256  # of a request


@dataclass(frozen=True)
class Request:
    """``rows`` tokens verified from position ``pre`` on, ``committed`` of them kept.
    ``pages`` is its row of the page table, ``seed`` its tokens."""

    pre: int
    rows: int
    committed: int
    pages: int
    seed: int


@dataclass(frozen=True)
class DraftInputsCase:
    """``drafts`` is K, ``page`` the KV tokens of a page."""

    form: str
    drafts: int
    page: int
    requests: tuple[Request, ...]


BEHAVIOURS = {
    "all_committed": "nothing was rejected",
    "only_current_token": "every draft was rejected",
    "single_row": "a request had no drafts to verify",
    "ragged": "requests verified different numbers of tokens",
    "one_draft": "no mask is needed",
    "masks": "drafts come from masks",
    "starts_a_page": "the bonus token is the first of a page",
    "live_rows_cross_a_page": "the rows from the bonus token on cross a page",
    "committed_rows_cross_a_page": "the committed tokens cross a page",
    "page_of_one": "every token has a page of its own",
    "several_requests": "a request behind another",
    "pages_out_of_order": "rows of the page table are not in the order of the batch",
    **{f"form_{form}": f"live rows of the form {form!r}" for form in FORMS},
}


def domain(case: DraftInputsCase) -> str:
    """Always ``functional``; raises InvalidCase outside the domain."""
    require(case.form in FORMS, f"form: must be one of {', '.join(FORMS)}")
    require(1 <= case.drafts <= MAX_DRAFTS, f"drafts: must be 1 to {MAX_DRAFTS}")
    require(1 <= case.page <= 64 and case.page & (case.page - 1) == 0, "page: must be a power of two up to 64")
    require(bool(case.requests), "requests: must not be empty")
    rows = [r.pages for r in case.requests]
    require(len(set(rows)) == len(rows), "requests.pages: two requests share a row of pages")
    require_size(case.requests, "requests", MAX_ROWS)
    for i, r in enumerate(case.requests):
        require(1 <= r.rows <= MAX_ROWS, f"requests[{i}].rows: must be 1 to {MAX_ROWS}")
        require(1 <= r.committed <= r.rows, f"requests[{i}].committed: must be 1 to rows")
        require(1 <= r.pages < POOL_ROWS, f"requests[{i}].pages: must be 1 to {POOL_ROWS - 1}")
        require(0 <= r.seed < 2**32, f"requests[{i}].seed: must be 0 to 2^32 - 1")
        end = PAGES * case.page
        require(
            r.pre >= 0 and r.pre + r.rows + case.drafts + 1 <= end, f"requests[{i}].pre: all rows must lie below {end}"
        )
    return FUNCTIONAL


def has_context(form: str) -> bool:
    """Forms whose committed tokens are a context beside the live rows."""
    return form in (BLOCK, ANCHORED)


def reference(case: DraftInputsCase, trace: Trace) -> Outcome:
    """Lay the rows one behind the other."""
    outcome: dict[str, list] = {f.name: [] for f in CONTRACT.fields if f.axis == "request"}
    for i, r in enumerate(case.requests):
        block, bonus = _tokens(r)
        rows: list[tuple[int, int]] = []  # token, position
        if case.form == SHIFTED:
            rows += [(block[j + 1], r.pre + j) for j in range(r.committed - 1)]
        if case.form == APPENDED:
            rows += [(block[j], r.pre + j) for j in range(r.committed)]
        first = r.pre + r.committed - (1 if case.form == SHIFTED else 0)
        masks = case.drafts if case.form == BLOCK else case.drafts - 1
        bonus_row = len(rows)
        rows.append((bonus, first))
        for k in range(masks):
            rows.append((MASK, first + 1 + k))
        sampled = range(bonus_row + (1 if case.form == BLOCK else 0), len(rows))
        context = [r.pre + j for j in range(r.committed)] if has_context(case.form) else []
        found = {
            "tokens": [token for token, _ in rows],
            "positions": [position for _, position in rows],
            "sampled_rows": list(sampled),
            "rejected_rows": r.rows - r.committed,
            "locations": [_location(r, position, case.page) for _, position in rows],
            "context_positions": context,
            "context_locations": [_location(r, position, case.page) for position in context],
        }
        for field in CONTRACT.fields:
            if field.axis == "request":
                outcome[field.name].append(found[field.name])
                trace.step(field.meaning, i, field.name, value=found[field.name])
        _behaviours(case, r, i, first, rows[-1][1], trace)
    trace.step("nothing outside the results is written", decides="outside_untouched")
    if len({r.rows for r in case.requests}) > 1:
        trace.behaviour("ragged")
    rows_of_pages = [r.pages for r in case.requests]
    if rows_of_pages != sorted(rows_of_pages):
        trace.behaviour("pages_out_of_order")
    return outcome | {"outside_untouched": True}


def _tokens(r: Request) -> tuple[list[int], int]:
    """The verified tokens, and the bonus token."""
    block, predicted = tokens(tuple(range(r.committed)), r.rows, r.seed)
    return block, predicted[r.committed - 1]


def _location(r: Request, position: int, page: int) -> int:
    return location(r.pages, position // page, PAGES) * page + position % page


def _behaviours(case: DraftInputsCase, r: Request, i: int, first: int, last: int, trace: Trace) -> None:
    for name, reached in (
        ("all_committed", r.committed == r.rows > 1),
        ("only_current_token", r.committed == 1 < r.rows),
        ("single_row", r.rows == 1),
        ("one_draft", case.drafts == 1),
        ("masks", last > first),
        ("starts_a_page", case.page > 1 and first % case.page == 0),
        ("live_rows_cross_a_page", case.page > 1 and first // case.page != last // case.page),
        ("committed_rows_cross_a_page", case.page > 1 and r.pre // case.page != (first - 1) // case.page),
        ("page_of_one", case.page == 1),
        ("several_requests", i > 0),
        (f"form_{case.form}", True),
    ):
        if reached:
            trace.behaviour(name)


def second(case: DraftInputsCase) -> Outcome:
    """By slices of one line a request: block, bonus token and masks stand where they
    belong by position, and each form is a window of it."""
    out: dict[str, list] = {f.name: [] for f in CONTRACT.fields if f.axis == "request"}
    where = table(PAGES).astype(np.int64)
    for r in case.requests:
        block, bonus = _tokens(r)
        kept = r.committed
        line = np.array([*block[:kept], bonus, *[MASK] * case.drafts])  # line[x] is the token at position pre + x
        span = np.arange(len(line))
        low = {SHIFTED: 1, APPENDED: 0}.get(case.form, kept)
        high = kept + case.drafts + (1 if case.form == BLOCK else 0)
        shift = 1 if case.form == SHIFTED else 0
        positions = r.pre + span[low:high] - shift
        context = r.pre + span[: kept if has_context(case.form) else 0]
        out["tokens"].append(line[low:high].tolist())
        out["positions"].append(positions.tolist())
        out["sampled_rows"].append((span[high - case.drafts : high] - low).tolist())
        out["rejected_rows"].append(r.rows - kept)
        slots = [where[r.pages][x // case.page] * case.page + x % case.page for x in (positions, context)]
        out["locations"].append(slots[0].tolist())
        out["context_positions"].append(context.tolist())
        out["context_locations"].append(slots[1].tolist())
    return out | {"outside_untouched": True}


def columns(case: DraftInputsCase) -> dict[str, Any]:
    """``form``, ``drafts``, ``page``; int64 [B] ``pre``, ``rows``, ``committed``,
    ``bonus``; ``block`` int64 [B, most rows], -1 behind a request's own; ``pages``
    int32 [B, PAGES]."""
    most = max(r.rows for r in case.requests)
    block = np.full((len(case.requests), most), -1, dtype=np.int64)
    bonus = np.zeros(len(case.requests), dtype=np.int64)
    for i, r in enumerate(case.requests):
        block[i, : r.rows], bonus[i] = _tokens(r)
    return {
        "form": case.form,
        "drafts": case.drafts,
        "page": case.page,
        "pre": np.array([r.pre for r in case.requests], dtype=np.int64),
        "rows": np.array([r.rows for r in case.requests], dtype=np.int64),
        "committed": np.array([r.committed for r in case.requests], dtype=np.int64),
        "block": block,
        "bonus": bonus,
        "pages": table(PAGES)[[r.pages for r in case.requests]],
    }


def kind(field: str, expected: Any, observed: Any) -> str:
    """Another number of rows, or what is wrong with one of them."""
    if field == "outside_untouched":
        return "written_outside"
    if field == "rejected_rows":
        return "too_many" if observed > expected else "too_few"
    if len(observed) != len(expected):
        return "wrong_count"
    words = {"tokens": "wrong_token", "sampled_rows": "wrong_row"}
    return words.get(field, "wrong_position" if field.endswith("positions") else "wrong_location")


CONTRACT = Contract(
    name="commit.draft_inputs",
    version=1,
    case_type=DraftInputsCase,
    reference=reference,
    second=second,
    domain=domain,
    columns=columns,
    kind=kind,
    fields=(
        Field("tokens", "request", "tokens of the draft model's rows"),
        Field("positions", "request", "positions of those rows"),
        Field("sampled_rows", "request", "rows from which drafts are sampled"),
        Field("rejected_rows", "request", "rows marked as rejected"),
        Field("locations", "request", "KV locations of the rows"),
        Field("context_positions", "request", "positions of the committed tokens"),
        Field("context_locations", "request", "KV locations of the committed tokens"),
        Field("outside_untouched", "case", "nothing but the results was written"),
    ),
    behaviours=BEHAVIOURS,
    example=DraftInputsCase(SHIFTED, 1, 4, (Request(pre=10, rows=4, committed=2, pages=1, seed=1),)),
)
