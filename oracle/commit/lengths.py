"""commit.lengths: what a verify publishes and hands to the following round.

Definition. Request r had ``pre`` tokens and a verify block of N tokens, whose
token at block position (node) n lies in KV at ``table[pool_row, pre + n]``. The
nodes of its committed path are ``path``, c of them, root first; in a chain they
are 0 .. c-1. Verify publishes

* ``committed = c`` and ``post = pre + c``;
* the emitted tokens, the target's predictions at the path's nodes, the last of
  which is the *bonus token*, the current token of the following round;
* where the committed tokens lie in KV (``accepted_locations``: the path's nodes)
  and where they belong (``committed_locations``: ``table[pool_row, pre + j]``);
  they differ only in a tree;
* positions ``post + j`` and locations ``table[pool_row, post + j]``, j < N, of the
  following block.

Simulated acceptance (a benchmark switch) commits the same ``clamp(simulated, 1,
path_width)`` tokens of the chain for every request, whatever verify found. The
emitted tokens are then the drafts and, last, the prediction behind them (token
mode ``real``), or all of them ``STAND_IN`` (``fixed``). Lengths follow as above.

Nothing else may be written. Pool row 0 belongs to nobody: padding rows use it.
Emitted tokens behind the first c may hold anything and are not compared.

Source: this project's own words (docs: "Lengths, once and for all"); the faults
behind it are SGLang issues 26866 (row stride of the bonus gather) and 26335.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oracle.commit.token_table import POOL_ROWS, location, table, tokens
from oracle.contract import FUNCTIONAL, INT32_MAX, MAX_LENGTH, Contract, Field, Outcome, require, require_size
from oracle.trace import Trace

NONE = -1
LENGTH_MAX = {"int32": INT32_MAX, "int64": MAX_LENGTH}
STAND_IN = 100  # the token id that simulated acceptance emits in "fixed" mode
MAX_TABLE_WIDTH = 4096
NOBODY = 0  # the pool row that belongs to nobody; padding rows use it


@dataclass(frozen=True)
class Request:
    """``pre`` tokens before verify, ``path`` the nodes of its committed path,
    ``pool_row`` its row of the table, ``seed`` its draft tokens and predictions."""

    pre: int
    path: tuple[int, ...]
    pool_row: int
    seed: int


@dataclass(frozen=True)
class LengthsCase:
    """One verified batch. ``draft_tokens`` is N; ``path_width`` the columns of
    ``accept_index``; ``table_width`` the positions a table row holds, 0 where no
    table is handed over (then nothing is said about locations); ``simulated`` 0
    for a real verify. No requests means an idle batch."""

    draft_tokens: int
    path_width: int
    table_width: int
    length_dtype: str
    committed_dtype: str
    simulated: int
    token_mode: str
    requests: tuple[Request, ...]


BEHAVIOURS = {
    "all_committed": "every draft token was accepted",
    "only_current_token": "no draft token was accepted",
    "one_token_block": "the block is the current token alone",
    "narrow_accept_index": "accept_index has fewer columns than draft tokens",
    "narrow_below_first_row": "a narrow accept_index and a request behind the first",
    "path_leaves_chain": "a tree path skips a node, so node and step differ",
    "different_counts": "requests of one batch commit different numbers of tokens",
    "rows_out_of_order": "pool rows are not in the order of the batch",
    "nobody_row": "a padding row that uses the row of nobody",
    "table_end": "the following block ends at the last position of the table",
    "several_tiles": "the block is wider than 64 tokens",
    "length_beyond_int32": "post does not fit 32 bits",
    "length_near_int32_max": "the following block ends within one block of 2^31 - 1, in int32",
    "mixed_integer_types": "lengths and committed counts have different integer types",
    "simulated_fixed": "simulated acceptance with stand-in tokens",
    "simulated_real": "simulated acceptance with draft tokens",
    "simulated_clamped": "simulated acceptance asks for more than fits",
    "simulated_beyond_verified": "simulated acceptance commits tokens that verify rejected",
    "simulated_below_verified": "simulated acceptance commits fewer tokens than verify accepted",
    "idle_batch": "no requests",
}


def domain(case: LengthsCase) -> str:
    """Always ``functional``; raises InvalidCase outside the domain."""
    require(1 <= case.draft_tokens <= 128, "draft_tokens: must be 1 to 128")
    require(1 <= case.path_width <= case.draft_tokens, "path_width: must be 1 to draft_tokens")
    require_size(case.requests, "requests", case.draft_tokens)
    width = case.table_width
    require(0 <= width <= MAX_TABLE_WIDTH, f"table_width: must be 0 to {MAX_TABLE_WIDTH}")
    require(width & (width - 1) == 0, "table_width: must be 0 or a power of two")
    for name in ("length_dtype", "committed_dtype"):
        require(getattr(case, name) in LENGTH_MAX, f"{name}: must be int32 or int64")
    require(case.token_mode in ("real", "fixed"), "token_mode: must be real or fixed")
    require(0 <= case.simulated <= 256, "simulated: must be 0 to 256")
    rows = [r.pool_row for r in case.requests if r.pool_row != NOBODY]
    require(len(set(rows)) == len(rows), "requests.pool_row: two requests share a row")
    limit = width or LENGTH_MAX[case.length_dtype]
    for i, r in enumerate(case.requests):
        where = f"requests[{i}]"
        require(0 <= r.pool_row < POOL_ROWS, f"{where}.pool_row: must be 0 to {POOL_ROWS - 1}")
        require(0 <= r.seed < 2**32, f"{where}.seed: must be 0 to 2^32 - 1")
        require(1 <= len(r.path) <= case.path_width, f"{where}.path: must have 1 to path_width nodes")
        require(r.path[0] == 0, f"{where}.path: starts at the root, node 0")
        rising = all(a < b for a, b in zip(r.path, r.path[1:]))
        require(rising and r.path[-1] < case.draft_tokens, f"{where}.path: rising nodes below N")
        require(not case.simulated or r.path[-1] == len(r.path) - 1, f"{where}.path: simulated rounds verify chains")
        longest = max(len(r.path), simulated_length(case))
        require(
            r.pre >= 0 and r.pre + longest + case.draft_tokens <= limit,
            f"{where}.pre: the following block must end at or below {limit}",
        )
    return FUNCTIONAL


def simulated_length(case: LengthsCase) -> int:
    """Tokens that simulated acceptance commits; 0 for a real verify."""
    return min(case.simulated, case.path_width)


def reference(case: LengthsCase, trace: Trace) -> Outcome:
    """Walk every committed token of every request."""
    outcome: dict[str, list] = {f.name: [] for f in CONTRACT.fields if f.axis == "request"}
    if not case.requests:
        trace.behaviour("idle_batch")
    for i, request in enumerate(case.requests):
        block, predicted = tokens(request.path, case.draft_tokens, request.seed)
        path = range(simulated_length(case)) if case.simulated else request.path
        length, emitted, accepted, belongs = request.pre, [], [], []
        for step, node in enumerate(path):
            if not case.simulated:
                token = predicted[node]
            elif case.token_mode == "fixed":
                token = STAND_IN
            else:
                token = block[node + 1] if step + 1 < len(path) else predicted[node]
            emitted.append(token)
            if case.table_width:
                accepted.append(location(request.pool_row, request.pre + node, case.table_width))
                belongs.append(location(request.pool_row, length, case.table_width))
            length += 1
        positions = [length + j for j in range(case.draft_tokens)]
        found = {
            "committed": length - request.pre,
            "post": length,
            "emitted_tokens": emitted,
            "bonus_token": emitted[-1],
            "accepted_locations": accepted,
            "committed_locations": belongs,
            "next_positions": positions,
            "next_locations": [location(request.pool_row, p, case.table_width) for p in positions if case.table_width],
        }
        for field in CONTRACT.fields:
            if field.axis == "request":
                outcome[field.name].append(found[field.name])
                trace.step(field.meaning, i, field.name, value=found[field.name])
        _behaviours(case, request, length, trace)
    trace.step("nothing outside the results is written", decides="outside_untouched")
    if len({len(r.path) for r in case.requests}) > 1 and not case.simulated:
        trace.behaviour("different_counts")
    rows = [r.pool_row for r in case.requests if r.pool_row != NOBODY]
    if rows != sorted(rows):
        trace.behaviour("rows_out_of_order")
    if case.requests and case.length_dtype != case.committed_dtype:
        trace.behaviour("mixed_integer_types")
    if case.path_width < case.draft_tokens and len(case.requests) > 1:
        trace.behaviour("narrow_below_first_row")
    return outcome | {"outside_untouched": True}


def _behaviours(case: LengthsCase, request: Request, post: int, trace: Trace) -> None:
    found, end = len(request.path), post + case.draft_tokens
    forced = simulated_length(case)
    for name, reached in (
        ("all_committed", found == case.draft_tokens and not case.simulated),
        ("only_current_token", found == 1 < case.draft_tokens and not case.simulated),
        ("one_token_block", case.draft_tokens == 1),
        ("narrow_accept_index", case.path_width < case.draft_tokens),
        ("path_leaves_chain", request.path[-1] != found - 1),
        ("nobody_row", request.pool_row == NOBODY),
        ("table_end", end == case.table_width),
        ("several_tiles", case.draft_tokens > 64),
        ("length_beyond_int32", post > LENGTH_MAX["int32"]),
        ("length_near_int32_max", case.length_dtype == "int32" and end > LENGTH_MAX["int32"] - case.draft_tokens),
        ("simulated_fixed", case.simulated and case.token_mode == "fixed"),
        ("simulated_real", case.simulated and case.token_mode == "real"),
        ("simulated_clamped", case.simulated > case.path_width),
        ("simulated_beyond_verified", case.simulated and forced > found),
        ("simulated_below_verified", case.simulated and forced < found),
    ):
        if reached:
            trace.behaviour(name)


def second(case: LengthsCase) -> Outcome:
    """The same outcome by whole-array indexing of the table and the tokens."""
    c = columns(case)
    where = table(case.table_width).astype(np.int64)
    span = np.arange(case.draft_tokens)
    rows = range(len(case.requests))
    count = [simulated_length(case) or int(n) for n in c["committed"]]
    nodes = [span[:n] if case.simulated else c["path"][i][:n] for i, n in zip(rows, count)]
    emitted = [c["predicted"][i][nodes[i]] for i in rows]
    if case.simulated:
        drafts = [np.append(c["block"][i][1 : count[i]], c["predicted"][i][count[i] - 1]) for i in rows]
        emitted = [np.full(n, STAND_IN) for n in count] if case.token_mode == "fixed" else drafts
    post = [int(c["pre"][i]) + count[i] for i in rows]

    def at(i: int, positions: np.ndarray) -> list[int]:
        return where[c["pool_row"][i]][positions].tolist() if case.table_width else []

    return {
        "committed": count,
        "post": post,
        "emitted_tokens": [e.tolist() for e in emitted],
        "bonus_token": [int(e[-1]) for e in emitted],
        "accepted_locations": [at(i, c["pre"][i] + nodes[i]) for i in rows],
        "committed_locations": [at(i, np.arange(c["pre"][i], post[i])) for i in rows],
        "next_positions": [(post[i] + span).tolist() for i in rows],
        "next_locations": [at(i, post[i] + span) for i in rows],
        "outside_untouched": True,
    }


def columns(case: LengthsCase) -> dict[str, Any]:
    """Scalars and int64 arrays: ``pre``, ``committed`` (verified), ``pool_row``
    [B], ``path`` [B, path_width] padded with -1, ``block``, ``predicted`` [B, N].
    The table is not among them: ``token_table.table`` makes it."""
    path = np.full((len(case.requests), case.path_width), NONE, dtype=np.int64)
    for i, r in enumerate(case.requests):
        path[i, : len(r.path)] = r.path
    drawn = [tokens(r.path, case.draft_tokens, r.seed) for r in case.requests]
    shape = (len(case.requests), case.draft_tokens)
    return {
        "draft_tokens": case.draft_tokens,
        "path_width": case.path_width,
        "table_width": case.table_width,
        "length_dtype": case.length_dtype,
        "committed_dtype": case.committed_dtype,
        "simulated": case.simulated,
        "token_mode": case.token_mode,
        "pre": np.array([r.pre for r in case.requests], dtype=np.int64),
        "committed": np.array([len(r.path) for r in case.requests], dtype=np.int64),
        "pool_row": np.array([r.pool_row for r in case.requests], dtype=np.int64),
        "path": path,
        "block": np.array([b for b, _ in drawn], dtype=np.int64).reshape(shape),
        "predicted": np.array([p for _, p in drawn], dtype=np.int64).reshape(shape),
    }


def padding(case: LengthsCase) -> Request:
    """A padding row: nobody's pool row, the current token alone."""
    return Request(pre=0, path=(0,), pool_row=NOBODY, seed=0)


def kind(field: str, expected: Any, observed: Any) -> str:
    """Lengths are too short or too long; tokens and locations are wrong ones,
    or the wrong number of them."""
    if field == "outside_untouched":
        return "written_outside"
    if field in ("committed", "post"):
        return "too_short" if observed < expected else "too_long"
    if isinstance(expected, list) and len(observed) != len(expected):
        return "wrong_count"
    return {"emitted_tokens": "wrong_token", "bonus_token": "wrong_token", "next_positions": "wrong_position"}.get(
        field, "wrong_location"
    )


CONTRACT = Contract(
    name="commit.lengths",
    version=1,
    case_type=LengthsCase,
    reference=reference,
    second=second,
    domain=domain,
    columns=columns,
    kind=kind,
    padding=padding,
    fields=(
        Field("committed", "request", "tokens that verify commits"),
        Field("post", "request", "length published after verify"),
        Field("emitted_tokens", "request", "tokens emitted, the bonus token last"),
        Field("bonus_token", "request", "current token of the following round"),
        Field("accepted_locations", "request", "where the committed tokens lie in KV"),
        Field("committed_locations", "request", "where the committed tokens belong in KV"),
        Field("next_positions", "request", "positions of the following block"),
        Field("next_locations", "request", "KV locations of the following block"),
        Field("outside_untouched", "case", "nothing but the results was written"),
    ),
    behaviours=BEHAVIOURS,
    example=LengthsCase(
        draft_tokens=4, path_width=4, table_width=256, length_dtype="int64", committed_dtype="int32",
        simulated=0, token_mode="fixed", requests=(Request(pre=10, path=(0, 1), pool_row=1, seed=1),),
    ),
)  # fmt: skip
