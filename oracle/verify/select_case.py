"""Cases of verify.draft_select: what a draft model scored, and what the selection may read.

One record type serves all forms. A request has draft positions (slots); a slot
has rows of scores, one per predecessor, and the candidate tokens that the columns
stand for. ``top1`` and ``topk`` have one slot with one row over the vocabulary.
Scores are values of the case's dtype, so that no conversion changes them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from oracle.contract import DEFENSIVE, FUNCTIONAL, INT32_MAX, MAX_CELLS, MAX_LENGTH, require, require_size
from oracle.verify.rows import Row, require_float32, require_row

FORMS = ("top1", "topk", "walk", "tree")
MAX_SLOTS = 16
MAX_WIDTH = 64  # candidates of a slot, or the k of a top-k
# Bits of the significand and largest exponent: what a dtype can hold exactly.
_SIGNIFICAND = {"float32": 24, "bfloat16": 8, "float16": 11}
_LARGEST = {"float32": 128, "bfloat16": 128, "float16": 16}
_LEAST = {"float32": -149, "bfloat16": -133, "float16": -24}
DTYPES = tuple(_SIGNIFICAND)


@dataclass(frozen=True)
class Slot:
    """One draft position.

    ``candidates`` are token ids (none where the columns are the vocabulary itself),
    ``rows`` one row of scores for each possible predecessor, ``coin`` a uniform
    sample in [0, 1).
    """

    candidates: tuple[int, ...]
    rows: tuple[Row, ...]
    coin: float = 0.5


@dataclass(frozen=True)
class Request:
    """``position`` is the request's next one; ``divisor`` divides the scores of
    ``top1``; ``greedy`` and ``temperature`` belong to ``walk``."""

    slots: tuple[Slot, ...]
    position: int = 0
    divisor: Row | None = None
    greedy: bool = True
    temperature: float = 1.0


@dataclass(frozen=True)
class DraftSelectCase:
    """One selection for a batch. ``width`` is the k of ``topk``, the candidates of
    a ``walk``'s slot, the branches of a ``tree``; ``draft_tokens`` how many nodes
    a ``tree`` keeps, its root (the current token) included."""

    form: str
    dtype: str
    vocabulary: int
    width: int
    draft_tokens: int
    requests: tuple[Request, ...]


def columns_of(case: DraftSelectCase) -> int:
    """Columns of a row of scores."""
    return case.vocabulary if case.form in ("top1", "topk") else case.width


def domain(case: DraftSelectCase) -> str:
    """``functional`` unless a request is hostile; raises InvalidCase."""
    require(case.form in FORMS, f"form: must be one of {', '.join(FORMS)}")
    require(case.dtype in DTYPES, f"dtype: must be one of {', '.join(DTYPES)}")
    require(1 <= case.vocabulary <= INT32_MAX, "vocabulary: must be 1 to 2^31 - 1")
    require(1 <= case.width <= MAX_WIDTH, f"width: must be 1 to {MAX_WIDTH}")
    require(bool(case.requests), "requests: must not be empty")
    slots = len(case.requests[0].slots)
    require(1 <= slots <= MAX_SLOTS, f"requests[0].slots: must be 1 to {MAX_SLOTS}")
    _require_form(case, slots)
    require_size(case.requests, "requests", min(slots * case.width * columns_of(case), MAX_CELLS + 1))
    for i, request in enumerate(case.requests):
        _require_request(case, request, slots, f"requests[{i}]")
    return DEFENSIVE if any(hostile(case, r) for r in case.requests) else FUNCTIONAL


def _require_form(case: DraftSelectCase, slots: int) -> None:
    if case.form in ("top1", "topk"):
        require(slots == 1, f"requests[0].slots: {case.form} has one")
        require(case.width <= case.vocabulary, "width: must be at most the vocabulary")
        require(case.form == "topk" or case.width == 1, "width: top1 chooses one")
    if case.form == "tree":
        kept = case.draft_tokens - 1
        require(case.dtype == "float32", "dtype: a tree's masses are float32")
        require(1 <= kept <= candidates_of_tree(case.width, slots), "draft_tokens: more than there are candidates")
        require(kept <= MAX_WIDTH, f"draft_tokens: must be at most {MAX_WIDTH + 1}")
    else:
        require(case.draft_tokens == 0, f"draft_tokens: {case.form} keeps none, must be 0")


def candidates_of_tree(width: int, slots: int) -> int:
    """Candidates of all draft steps of a tree."""
    return width + (slots - 1) * width * width


def predecessors(case: DraftSelectCase, slot: int) -> int:
    """Rows of scores of a slot. A walk's first slot has them too, all but one unread."""
    return case.width if case.form == "walk" or (case.form == "tree" and slot > 0) else 1


def _require_request(case: DraftSelectCase, request: Request, slots: int, where: str) -> None:
    require(0 <= request.position <= MAX_LENGTH, f"{where}.position: must be 0 to 2^62")
    require(len(request.slots) == slots, f"{where}.slots: all requests have the same number")
    require_float32(request.temperature, f"{where}.temperature")
    if request.divisor is not None:
        require(case.form == "top1" and case.dtype == "float32", f"{where}.divisor: for top1 of float32 only")
        require_row(request.divisor, case.vocabulary, f"{where}.divisor")
    for j, slot in enumerate(request.slots):
        place, rows = f"{where}.slots[{j}]", predecessors(case, j)
        wanted = {"walk": case.width, "tree": rows * case.width}.get(case.form, 0)
        require(len(slot.candidates) == wanted, f"{place}.candidates: must be {wanted}")
        require(all(0 <= t < case.vocabulary for t in slot.candidates), f"{place}.candidates: outside the vocabulary")
        require(len(slot.rows) == rows, f"{place}.rows: must be {rows}")
        require(0.0 <= slot.coin < 1.0, f"{place}.coin: must be at least 0 and below 1")
        require_float32(slot.coin, f"{place}.coin")
        for p, row in enumerate(slot.rows):
            require_row(row, columns_of(case), f"{place}.rows[{p}]")
            _require_dtype(row, case.dtype, f"{place}.rows[{p}]")
            if case.form == "tree":
                require(all(not math.isinf(v) for v in values_of(row)), f"{place}.rows[{p}]: a mass is not infinite")


def values_of(row: Row) -> list[float]:
    """The values that stand in a row, ``rest`` first, even when every token is named."""
    return [row.rest, *(m.value for m in row.masses)]


def _require_dtype(row: Row, dtype: str, where: str) -> None:
    for v in values_of(row):
        require(_fits(v, dtype), f"{where}: {v!r} is no {dtype}")


def _fits(value: float, dtype: str) -> bool:
    if value == 0.0 or not math.isfinite(value):
        return True
    exponent = math.frexp(value)[1]
    unit = max(exponent - _SIGNIFICAND[dtype], _LEAST[dtype])
    return exponent <= _LARGEST[dtype] and math.ldexp(value, -unit).is_integer()


def hostile(case: DraftSelectCase, request: Request) -> bool:
    """True when only safety is asked of this request."""
    if case.form == "tree":
        return any(not 0.0 <= v <= 1.0 for s in request.slots for row in s.rows for v in held(row, case.width))
    rows = [held(row, columns_of(case)) for slot in request.slots for row in slot.rows]
    numbers = case.width if case.form == "topk" else 1
    if any(_bad(row, numbers) for row in rows):
        return True
    if case.form == "top1" and request.divisor is not None:
        return any(not 0.0 < d < math.inf for d in held(request.divisor, case.vocabulary)) or any(
            math.isinf(v) for row in rows for v in row
        )
    if case.form == "walk" and not request.greedy:
        largest = max((abs(v) for row in rows for v in row if v != -math.inf), default=0.0)
        return not 0.0 < request.temperature < math.inf or largest / request.temperature >= 2.0**126
    return False


def _bad(row: list[float], numbers: int) -> bool:
    """NaN in it, or fewer than ``numbers`` scores above minus infinity. ``rest``
    stands for at least one token and is counted by ``held`` as often as needed."""
    return any(v != v for v in row) or sum(v > -math.inf for v in row) < numbers


def held(row: Row, columns: int) -> list[float]:
    """The values that tokens hold; ``rest`` at most ``MAX_WIDTH`` times."""
    unnamed = columns - len(row.masses)
    return [m.value for m in row.masses] + [row.rest] * min(unnamed, MAX_WIDTH)
