"""verify.target_distribution: from the target's logits to the distribution that verify
samples from.

Definition. A request has sampling parameters; its verify block has several rows of
logits, and every row of the request is treated alike. Tokens without a logit are
masked out and never have mass. For one row:

1. p = softmax(logits / temperature);
2. top-k: the k most likely tokens stay, and p is normalised again;
3. top-p: token by token from the most likely one, a token stays while the mass in
   front of it is below top_p; p is normalised again;
4. min-p: tokens with less than min_p times the mass of the most likely token go, and
   p is normalised again.

Equal logits are equally likely. Where a cut falls among equal tokens, an
implementation may keep all of them or any that fill the count: nobody promises which.

Observed of each request: the tokens that have mass in one of its rows, and the mass
of one token there.

Rounding model. With z the scaled logits, the difference to the largest and the
exponential make each term wrong by 2^-24 (2 |z| + (max - min) + 4) of itself; a
mass is a quotient of sums of such terms, so twice that, and each of up to three
normalisations adds n + 2 roundings. A mass in front of a token adds n + 2 more, and
it may lie on either side of top_p within that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any

import numpy as np

from oracle.contract import FUNCTIONAL, INT32_MAX, Contract, Field, Outcome, require, require_size
from oracle.legal import Real, describe
from oracle.trace import Trace
from oracle.verify.filtered_row import ExactRow, Filtered, Kept, mass_of, supports, top_p_counts, top_p_from_behind
from oracle.verify.rows import Mass, Row, dense, require_float32, require_row

MAX_ROWS = 16
MAX_NAMED = 32  # tokens with a logit
MAX_EQUAL = 4  # tokens with one logit: every choice among them is written down
MAX_RANGE = 80.0  # of scaled logits: beyond, masses leave the normal float32
GRID = 16.0  # logits are multiples of 1/16, so that unequal ones stay unequal when scaled
TOP_K_ALL = 2**30  # a request without top-k


@dataclass(frozen=True)
class Request:
    """Sampling parameters, the rows of the block, and which token of which row is looked at."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    rows: tuple[Row, ...]
    row: int
    token: int


@dataclass(frozen=True)
class TargetDistributionCase:
    """A batch of requests with the same number of rows."""

    vocabulary: int
    requests: tuple[Request, ...]


BEHAVIOURS = {
    "plain": "temperature 1 and no filter",
    "temperature": "a temperature other than 1",
    "top_k_cuts": "top-k removes tokens",
    "top_k_1": "only the most likely token stays",
    "top_k_not_below_tokens": "top-k is not below the number of tokens with a logit",
    "top_p_cuts": "top-p removes tokens",
    "top_p_keeps_one": "top-p keeps only the most likely token",
    "min_p_cuts": "min-p removes tokens",
    "top_k_and_top_p_cut": "both top-k and top-p remove tokens",
    "order_matters": "top-p over the whole row would keep other tokens than after top-k",
    "tie_at_cut": "a cut falls among equal tokens",
    "top_p_near_edge": "the mass in front of a token is within rounding of top_p",
    "masked_tokens": "tokens without a logit",
    "one_token": "a row with a single token",
    "parameters_differ": "requests of one batch have different parameters",
    "token_without_mass": "the token looked at has no mass",
}


def domain(case: TargetDistributionCase) -> str:
    """Always ``functional``; raises InvalidCase outside the domain."""
    require(2 <= case.vocabulary <= INT32_MAX, "vocabulary: must be 2 to 2^31 - 1")
    require(bool(case.requests), "requests: must not be empty")
    count = len(case.requests[0].rows)
    require(1 <= count <= MAX_ROWS, f"requests[0].rows: must be 1 to {MAX_ROWS}")
    require_size(case.requests, "requests", count * case.vocabulary)
    for i, r in enumerate(case.requests):
        where = f"requests[{i}]"
        for name in ("temperature", "top_p", "min_p"):
            require_float32(getattr(r, name), f"{where}.{name}")
        require(0.0625 <= r.temperature <= 16.0, f"{where}.temperature: must be 1/16 to 16")
        require(1 <= r.top_k <= TOP_K_ALL, f"{where}.top_k: must be 1 to 2^30")
        require(0.0 < r.top_p <= 1.0, f"{where}.top_p: must be above 0, at most 1")
        require(0.0 <= r.min_p <= 1.0, f"{where}.min_p: must be 0 to 1")
        require(len(r.rows) == count, f"{where}.rows: all requests have one number of rows")
        require(0 <= r.row < count, f"{where}.row: must be a row")
        require(0 <= r.token < case.vocabulary, f"{where}.token: outside the vocabulary")
        for j, row in enumerate(r.rows):
            _require_logits(row, case.vocabulary, r.temperature, f"{where}.rows[{j}]")
    return FUNCTIONAL


def _require_logits(row: Row, vocabulary: int, temperature: float, where: str) -> None:
    require_row(row, vocabulary, where)
    values = [m.value for m in row.masses]
    require(row.rest == -math.inf, f"{where}.rest: must be -inf, every other token is named")
    require(1 <= len(values) <= MAX_NAMED, f"{where}.masses: must be 1 to {MAX_NAMED} tokens")
    require(all(abs(v) <= 64 and v * GRID == int(v * GRID) for v in values if math.isfinite(v)) and
            all(map(math.isfinite, values)), f"{where}.masses: logits are multiples of 1/16, at most 64")  # fmt: skip
    require((max(values) - min(values)) / temperature <= MAX_RANGE, f"{where}.masses: too far apart when scaled")
    require(max(values.count(v) for v in values) <= MAX_EQUAL, f"{where}.masses: more than {MAX_EQUAL} equal logits")


def _solve(request: Request, row: ExactRow, result: Filtered) -> tuple[Any, Any]:
    legal, loose = (tuple(map(list, found)) for found in (result.supports, result.without_min_p))
    return Kept(legal, result.margin, loose), mass_of(row, request.token, result.supports)


def reference(case: TargetDistributionCase, trace: Trace) -> Outcome:
    """Filter by filter, with exact sums of exponentials of 40 digits."""
    outcome: Outcome = {"kept": [], "mass": []}
    for i, request in enumerate(case.requests):
        with localcontext(prec=40):
            row = ExactRow(request.rows[request.row], request.temperature)
            result = supports(row, request.top_k, request.top_p, request.min_p)
            kept, mass = _solve(request, row, result)
            _behaviours(case.vocabulary, request, row, result, mass, trace)
            total = sum(row.weight.values())
            trace.step("scaled softmax", i, row=request.row, tokens=row.order[:8],
                       masses=[float(row.weight[t] / total) for t in row.order[:8]])  # fmt: skip
        for name, stage in zip(("after top-k", "after top-p", "after min-p"), result.stages[1:], strict=True):
            trace.step(name, i, tokens=list(stage[:8]), count=len(stage))
        trace.step("tokens with mass", i, "kept", value=kept)
        trace.step("mass of the token", i, "mass", value=mass)
        outcome["kept"].append(kept)
        outcome["mass"].append(mass)
    if len({(r.temperature, r.top_k, r.top_p, r.min_p) for r in case.requests}) > 1:
        trace.behaviour("parameters_differ")
    return outcome


def _behaviours(size: int, r: Request, row: ExactRow, result: Filtered, mass: Any, trace: Trace) -> None:
    every, top_k, top_p, min_p = result.stages
    whole = row.cut(every, top_p_counts(row, every, Decimal(r.top_p))[0][0])[0]
    shown = {
        "plain": r.temperature == 1.0 and len(min_p) == len(every),
        "temperature": r.temperature != 1.0,
        "top_k_cuts": len(top_k) < len(every),
        "top_k_1": r.top_k == 1 and len(every) > 1,
        "top_k_not_below_tokens": len(every) <= r.top_k < TOP_K_ALL,
        "top_p_cuts": len(top_p) < len(top_k),
        "top_p_keeps_one": len(top_p) == 1 < len(top_k),
        "min_p_cuts": len(min_p) < len(top_p),
        "top_k_and_top_p_cut": len(top_p) < len(top_k) < len(every),
        "order_matters": set(top_p) != set(top_k) & set(whole),
        "tie_at_cut": result.tie,
        "top_p_near_edge": result.margin is not None,
        "masked_tokens": len(every) < size,
        "one_token": len(every) == 1,
        "token_without_mass": mass == 0,
    }
    for name, is_shown in shown.items():
        if is_shown:
            trace.behaviour(name)


def second(case: TargetDistributionCase) -> Outcome:
    """top-p counted from the least likely token on."""
    outcome: Outcome = {"kept": [], "mass": []}
    for request in case.requests:
        with localcontext(prec=40):
            row = ExactRow(request.rows[request.row], request.temperature)
            result = supports(row, request.top_k, request.top_p, request.min_p, top_p_from_behind)
            kept, mass = _solve(request, row, result)
        outcome["kept"].append(kept)
        outcome["mass"].append(mass)
    return outcome


def columns(case: TargetDistributionCase) -> dict[str, Any]:
    """``logits`` float32 [B, R, V]; ``temperature``, ``top_p``, ``min_p`` float32 [B];
    ``top_k``, ``row``, ``token`` int64 [B]."""
    found = {
        name: np.array([getattr(r, name) for r in case.requests], dtype=dtype)
        for name, dtype in (("temperature", np.float32), ("top_p", np.float32), ("min_p", np.float32),
                            ("top_k", np.int64), ("row", np.int64), ("token", np.int64))
    }  # fmt: skip
    logits = np.array([[dense(row, case.vocabulary) for row in r.rows] for r in case.requests], dtype=np.float32)
    return found | {"vocabulary": case.vocabulary, "logits": logits}


def kind(field: str, expected: Any, observed: Any) -> str:
    """Min-p left out; too many tokens, too few, or others; too much mass or too little."""
    if field == "mass":
        return "too_much" if observed > (expected.high if isinstance(expected, Real) else expected) else "too_little"
    if observed in expected.without_min_p:
        return "min_p_not_applied"
    right = set(expected.values[0])
    if set(observed) > right:
        return "too_many"
    return "too_few" if set(observed) < right else "other_tokens"


def say(case: TargetDistributionCase, field: str, where: tuple[int, ...], observed: Any) -> str:
    """The claim, with the parameters it follows from."""
    r, must = case.requests[where[0]], CONTRACT.run(case)[0][field][where[0]]
    how = f"temperature {r.temperature!r}, top-k {r.top_k}, top-p {r.top_p!r}, min-p {r.min_p!r}"
    place = f"request {where[0]}, row {r.row}"
    if field == "kept":
        return f"{place}: tokens with mass must be {describe(must)}, production has {observed}; {how}"
    return f"{place}: the mass of token {r.token} must be {describe(must)}, production has {observed:.9g}; {how}"


def padding(case: TargetDistributionCase) -> Request:
    """A greedy-like request: one token in every row."""
    row = Row((Mass(0, 0.0),), -math.inf)
    return Request(1.0, 1, 1.0, 0.0, (row,) * len(case.requests[0].rows), 0, 0)


def _example() -> TargetDistributionCase:
    row = Row((Mass(0, 0.0), Mass(1, 1.0), Mass(2, 2.0)), -math.inf)
    return TargetDistributionCase(4, (Request(1.0, TOP_K_ALL, 1.0, 0.0, (row, row), 1, 2),))


CONTRACT = Contract(
    name="verify.target_distribution",
    version=1,
    case_type=TargetDistributionCase,
    reference=reference,
    second=second,
    domain=domain,
    columns=columns,
    kind=kind,
    fields=(
        Field("kept", "request", "tokens with mass in the row looked at, rising"),
        Field("mass", "request", "mass of the token looked at"),
    ),
    behaviours=BEHAVIOURS,
    padding=padding,
    say=say,
    example=_example(),
)
