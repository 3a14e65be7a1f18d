"""Cases of draft.mtp_chain: what may be asked, and the form in which an adapter gets it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.commit.token_table import POOL_ROWS
from oracle.contract import FUNCTIONAL, require, require_size
from oracle.draft.proposer import CANDIDATES, VOCABULARY, proposals

WINDOW, BEAM, FROZEN = "window", "beam", "frozen"
FORMS = (WINDOW, BEAM, FROZEN)
PER_ROW = ("positions", "locations", "tokens", "hidden")  # fields with a value a row of every step
REQUEST_FIELDS = (*PER_ROW, "drafts", "stash_owner")
ROUND = 1  # of the requests under test; the earlier round is 0
NOWHERE = -1  # the location of a row that writes no KV
MAX_STEPS = 6
MAX_REQUESTS = 12
MAX_COMMITTED = 40  # without graphs: a prompt
LARGEST_GRAPH = 16
TABLE_WIDTH = 1024  # tokens of a request that the token table has room for
LEAST_GAP = 1e-3  # between the scores of two continuations, relative; float32 products stay far below


@dataclass(frozen=True)
class Request:
    """``pre`` tokens before the verify, ``committed`` of its tokens kept, the bonus token
    included; ``pool_row`` is its row of the token table, ``seed`` its tokens. A prompt is as
    a verify of which everything is kept: its first new token counts as the bonus token."""

    pre: int
    committed: int
    pool_row: int
    seed: int


@dataclass(frozen=True)
class MtpChainCase:
    """``steps`` draft tokens are proposed one behind the other from ``width`` rows at a
    time; ``captured`` are the batch sizes with a graph, ascending, empty without graphs.
    The requests of ``earlier`` were served by the same runner one round before."""

    form: str
    chained: bool
    steps: int
    width: int
    captured: tuple[int, ...]
    earlier: tuple[Request, ...]
    requests: tuple[Request, ...]


def rows_of(records: tuple[Request, ...], steps: int) -> int:
    """Verified tokens a request: one more than there are drafts, or a longest prompt."""
    return max([steps + 1, *(r.committed for r in records)])


def tokens_of(r: Request, rows: int) -> list[int]:
    """The target's token behind each of the first ``rows`` verified ones: the first
    ``committed`` are kept and the last of these is the bonus token."""
    rng = random.Random(r.seed)
    return [rng.randrange(VOCABULARY) for _ in range(rows)]


def kept_of(r: Request) -> list[int]:
    """The kept tokens, the bonus token last."""
    return tokens_of(r, r.committed)


def bonus_of(r: Request) -> int:
    return kept_of(r)[-1]


def beams_of(case: MtpChainCase, r: Request) -> list[list[tuple[int, int]]]:
    """Token and parent row of each row, for every draft that is proposed from ``width``
    rows: the best continuations of the rows before, best first. Raises InvalidCase when
    two scores are too close for float32 to order."""
    found: list[list[tuple[int, int]]] = []
    scored = [(score, token, 0) for token, score in proposals(bonus_of(r), 0)]
    for step in range(case.steps):
        scored.sort(reverse=True)
        kept = scored[: case.width]
        for (better, *_), (worse, *_) in zip(kept, scored[1:], strict=False):
            require(better - worse > LEAST_GAP, "requests.seed: two continuations have almost the same score")
        found.append([(token, parent) for _, token, parent in kept])
        scored = []
        for row, (score, token, _) in enumerate(kept):
            # A row offers no more than `width` of its candidates.
            continued = proposals(token, step + 1)[: case.width]
            scored += [(score + more, following, row) for following, more in continued]
    return found


def graph_of(case: MtpChainCase, batch: int) -> int:
    """Batch size of the graph that serves ``batch`` requests; 0 when none is large enough."""
    return min((size for size in case.captured if size >= batch), default=0)


def runs_of(case: MtpChainCase) -> int:
    """How often a draft model runs: the first drafts of ``beam`` come from elsewhere."""
    return case.steps - 1 if case.form == BEAM else case.steps


def domain(case: MtpChainCase) -> str:
    """Always ``functional``; raises InvalidCase outside the domain."""
    require(case.form in FORMS, f"form: must be one of {', '.join(FORMS)}")
    require(1 <= case.steps <= MAX_STEPS, f"steps: must be 1 to {MAX_STEPS}")
    require(case.form == WINDOW or case.chained, "chained: only a window can be fed the target's state again")
    widths = (1,) if case.form == WINDOW else (1, 2, CANDIDATES)
    require(case.width in widths, f"width: must be one of {widths} for the form {case.form!r}")
    require(case.form == WINDOW or not (case.captured or case.earlier), "captured, earlier: only for a window")
    ascending = list(case.captured) == sorted(set(case.captured))
    within = all(1 <= size <= LARGEST_GRAPH for size in case.captured)
    require(ascending and within, f"captured: must ascend from 1 to {LARGEST_GRAPH}")
    require(bool(case.requests), "requests: must not be empty")
    prompt = case.form == WINDOW and not (case.captured or case.earlier)
    most = MAX_COMMITTED if prompt else case.steps + 1
    for name, records in (("requests", case.requests), ("earlier", case.earlier)):
        require_size(records, name, MAX_COMMITTED)
        require(len(records) <= MAX_REQUESTS, f"{name}: must be at most {MAX_REQUESTS}")
        rows = [r.pool_row for r in records]
        require(len(set(rows)) == len(rows), f"{name}.pool_row: two requests share a row")
        for i, r in enumerate(records):
            last = TABLE_WIDTH - case.steps * case.width - max(case.steps + 1, r.committed)
            require(case.steps <= r.pre <= last, f"{name}[{i}].pre: must be {case.steps} to {last}")
            require(1 <= r.committed <= most, f"{name}[{i}].committed: must be 1 to {most}")
            require(1 <= r.pool_row < POOL_ROWS, f"{name}[{i}].pool_row: must be 1 to {POOL_ROWS - 1}")
            require(0 <= r.seed < 2**32, f"{name}[{i}].seed: must be 0 to 2^32 - 1")
    if case.width > 1:
        for r in case.requests:
            beams_of(case, r)
    return FUNCTIONAL


def columns(case: MtpChainCase) -> dict[str, Any]:
    """``form``, ``chained``, ``steps``, ``width``; int64 [B] ``pre``, ``committed``,
    ``pool_row``, ``bonus``; int64 [B, rows] ``predicted``, the target's token behind each
    verified one (``rows_of``); int64 ``captured``; the same arrays of the earlier round under
    ``earlier_pre`` and so on, with no row when there was none."""
    made: dict[str, Any] = {
        "form": case.form,
        "chained": case.chained,
        "steps": case.steps,
        "width": case.width,
        "captured": np.array(case.captured, dtype=np.int64),
    }
    for prefix, records in (("", case.requests), ("earlier_", case.earlier)):
        for name in ("pre", "committed", "pool_row"):
            made[prefix + name] = np.array([getattr(r, name) for r in records], dtype=np.int64)
        made[prefix + "bonus"] = np.array([bonus_of(r) for r in records], dtype=np.int64)
        rows = rows_of(records, case.steps)
        predicted = np.array([tokens_of(r, rows) for r in records], dtype=np.int64)
        made[prefix + "predicted"] = predicted.reshape(len(records), rows)
    return made
