"""Mutants of commit.lengths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fuzz.mutants.mutant import Mutant
from oracle.commit.lengths import STAND_IN, LengthsCase, Request, second, simulated_length
from oracle.commit.token_table import POOL_ROWS, location, tokens

FILLER = -977  # what lies outside the buffers


def _with(**changes: Callable[[LengthsCase, Request, int, dict[str, Any]], Any]) -> Callable[[Any], dict[str, Any]]:
    """The right outcome, but with the named fields of every request computed by
    ``change(case, request, row, right fields of the row)``."""

    def observe(case: LengthsCase) -> dict[str, Any]:
        right = second(case)
        wrong = dict(right)
        for name, change in changes.items():
            wrong[name] = [
                change(case, r, row, {k: v[row] for k, v in right.items() if isinstance(v, list)})
                for row, r in enumerate(case.requests)
            ]
        return wrong

    return observe


def _plus(amount: int) -> Callable[..., Any]:
    return lambda case, r, row, right: right["post"] + amount


def _narrowed(case: LengthsCase, r: Request, row: int, right: dict[str, Any]) -> int:
    return (right["post"] + 2**31) % 2**32 - 2**31


def _predicted(case: LengthsCase, r: Request) -> list[int]:
    return tokens(r.path, case.draft_tokens, r.seed)[1]


def _real_path(case: LengthsCase, r: Request, change: Callable[[list[int]], int], right: dict[str, Any]) -> int:
    """A wrong node of a real verify; simulated rounds stay right."""
    if case.simulated:
        return right["bonus_token"]
    node = change(list(r.path))
    predicted = _predicted(case, r)
    return predicted[node] if 0 <= node < len(predicted) else FILLER


def _bonus_of(change: Callable[[list[int]], int]) -> Callable[..., Any]:
    return lambda case, r, row, right: _real_path(case, r, change, right)


def _wrong_stride(case: LengthsCase, r: Request, row: int, right: dict[str, Any]) -> int:
    if case.simulated:
        return right["bonus_token"]
    at, step = divmod(row * case.draft_tokens + len(r.path) - 1, case.path_width)
    if at >= len(case.requests) or step >= len(case.requests[at].path):
        return FILLER
    owner = case.requests[at]
    return _predicted(case, owner)[owner.path[step]]


def _emitted_is_block(case: LengthsCase, r: Request, row: int, right: dict[str, Any]) -> list[int]:
    if case.simulated:
        return right["emitted_tokens"]
    block = tokens(r.path, case.draft_tokens, r.seed)[0]
    return [block[n] for n in r.path]


def _first_row(name: str) -> Callable[[Any], dict[str, Any]]:
    def observe(case: LengthsCase) -> dict[str, Any]:
        right = second(case)
        right[name] = [right[name][0] for _ in case.requests]
        return right

    return observe


def _located(row_of: Callable[[Request, int], int], start_of: Callable[[Request, int], int]) -> Callable[..., Any]:
    """``next_locations`` looked up in another row or from another start."""

    def change(case: LengthsCase, r: Request, row: int, right: dict[str, Any]) -> list[int]:
        if not case.table_width:
            return right["next_locations"]
        start = start_of(r, right["post"])
        return [
            location(row_of(r, row) % POOL_ROWS, (start + j) % case.table_width, case.table_width)
            for j in range(case.draft_tokens)
        ]

    return change


def _affine(case: LengthsCase, r: Request, row: int, right: dict[str, Any]) -> list[int]:
    return [right["next_locations"][0] + j for j in range(len(right["next_locations"]))]


def _chain_locations(case: LengthsCase, r: Request, row: int, right: dict[str, Any]) -> list[int]:
    return right["committed_locations"]


def _shifted_locations(case: LengthsCase, r: Request, row: int, right: dict[str, Any]) -> list[int]:
    if not case.table_width:
        return right["committed_locations"]
    span = range(r.pre + 1, right["post"] + 1)
    return [location(r.pool_row, p % case.table_width, case.table_width) for p in span]


def _outside(case: LengthsCase) -> dict[str, Any]:
    return second(case) | {"outside_untouched": False}


def _padding_too(case: LengthsCase) -> dict[str, Any] | None:
    """Writes one row more than there are; only a batch shows it."""
    return _outside(case) if len(case.requests) > 1 else second(case)


def _not_simulated(case: LengthsCase) -> dict[str, Any]:
    return second(replace(case, simulated=0))


def _one_less(case: LengthsCase) -> dict[str, Any]:
    return second(replace(case, simulated=max(1, simulated_length(case) - 1)) if case.simulated else case)


def _unclamped(case: LengthsCase) -> dict[str, Any]:
    right = second(case)
    if case.simulated > case.path_width:
        right["committed"] = [case.simulated for _ in case.requests]
        right["post"] = [r.pre + case.simulated for r in case.requests]
    return right


def _all_stand_in(case: LengthsCase, r: Request, row: int, right: dict[str, Any]) -> list[int]:
    return [STAND_IN] * len(right["emitted_tokens"]) if case.simulated else right["emitted_tokens"]


def _predictions_not_drafts(case: LengthsCase, r: Request, row: int, right: dict[str, Any]) -> list[int]:
    if not case.simulated or case.token_mode == "fixed":
        return right["emitted_tokens"]
    return _predicted(case, r)[: len(right["emitted_tokens"])]


def _idle_publishes(case: LengthsCase) -> dict[str, Any]:
    return second(case) if case.requests else second(case) | {"post": [1], "committed": [1]}


MUTANTS = (
    Mutant(
        "stale_length", "stale_length", "publishes the length before verify", _with(post=lambda c, r, i, right: r.pre)
    ),
    Mutant("length_without_current", "dropped_bonus", "counts accepted drafts alone", _with(post=_plus(-1))),
    Mutant("length_with_bonus_twice", "off_by_one", "counts the new bonus token as committed", _with(post=_plus(1))),
    Mutant(
        "length_of_block",
        "dropped_length",
        "publishes the whole block",
        _with(post=lambda c, r, i, right: r.pre + c.draft_tokens),
    ),
    Mutant("narrowed_length", "integer_width", "adds in 32 bits", _with(post=_narrowed)),
    Mutant("length_of_first_row", "wrong_row", "publishes the first request's length for all", _first_row("post")),
    Mutant(
        "count_excludes_current",
        "dropped_bonus",
        "publishes accepted drafts as committed",
        _with(committed=lambda c, r, i, right: right["committed"] - 1),
    ),
    Mutant(
        "bonus_is_last_draft",
        "off_by_one",
        "takes the prediction before the last committed token",
        _with(bonus_token=_bonus_of(lambda path: path[-2] if len(path) > 1 else -1)),
    ),
    Mutant(
        "bonus_behind",
        "off_by_one",
        "takes the prediction behind the bonus token",
        _with(bonus_token=_bonus_of(lambda path: path[-1] + 1)),
    ),
    Mutant(
        "bonus_of_step",
        "node_for_step",
        "takes the step for the tree node",
        _with(bonus_token=_bonus_of(lambda path: len(path) - 1)),
    ),
    Mutant(
        "bonus_row_stride",
        "wrong_stride",
        "steps rows by the draft tokens, not by the path width",
        _with(bonus_token=_wrong_stride),
    ),
    Mutant("bonus_of_first_row", "wrong_row", "takes the first request's bonus token", _first_row("bonus_token")),
    Mutant(
        "emits_drafts",
        "shifted_tokens",
        "emits the block's tokens, not the predictions",
        _with(emitted_tokens=_emitted_is_block),
    ),
    Mutant(
        "accepted_in_front",
        "node_for_step",
        "takes the front of the block for the accepted path",
        _with(accepted_locations=_chain_locations),
    ),
    Mutant(
        "committed_one_late",
        "off_by_one",
        "moves committed tokens one position too far",
        _with(committed_locations=_shifted_locations),
    ),
    Mutant(
        "next_from_pre",
        "stale_length",
        "starts the following block at the old length",
        _with(next_positions=lambda c, r, i, right: [r.pre + j for j in range(c.draft_tokens)]),
    ),
    Mutant(
        "next_one_late",
        "off_by_one",
        "starts the following block one too late",
        _with(next_positions=lambda c, r, i, right: [p + 1 for p in right["next_positions"]]),
    ),
    Mutant(
        "slot_for_row",
        "slot_for_row",
        "looks locations up by place in the batch",
        _with(next_locations=_located(lambda r, row: row, lambda r, post: post)),
    ),
    Mutant(
        "locations_from_pre",
        "stale_length",
        "hands over the locations just verified",
        _with(next_locations=_located(lambda r, row: r.pool_row, lambda r, post: r.pre)),
    ),
    Mutant("locations_counted_up", "not_looked_up", "counts up from the first location", _with(next_locations=_affine)),
    Mutant("written_outside", "neighbour_overwritten", "writes past its rows", _outside),
    Mutant("one_row_more", "neighbour_overwritten", "writes a row too many", _padding_too),
    Mutant("simulated_ignored", "simulated", "publishes the real verify", _not_simulated),
    Mutant("simulated_excludes_current", "dropped_bonus", "commits one token fewer than asked for", _one_less),
    Mutant("simulated_unclamped", "simulated", "commits more than the block holds", _unclamped),
    Mutant(
        "simulated_stand_ins",
        "simulated",
        "emits stand-ins where draft tokens are asked for",
        _with(emitted_tokens=_all_stand_in),
    ),
    Mutant(
        "simulated_predictions",
        "shifted_tokens",
        "emits predictions where draft tokens are asked for",
        _with(emitted_tokens=_predictions_not_drafts),
    ),
    Mutant("idle_publishes", "nothing_case", "publishes a length for an idle batch", _idle_publishes),
)
