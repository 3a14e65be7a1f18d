"""Cases of draft.inputs. Simplest first: one request with a prompt of five, verified once."""

from __future__ import annotations

from fuzz.strategies.source import Source, choice, flag
from oracle.draft.inputs_case import MAX_ROUNDS, InputsCase, Request

MOST_REQUESTS = 5
PROMPTS = (5, 1, 2, 3, 9, 300)


def structure(source: Source) -> InputsCase:
    front = choice(source, (2, 3, 1, 5, 8))
    warmup = source.integer(0, front) if flag(source) else 0
    width = choice(source, (4, 2, 3, 8))
    prefill_only = source.integer(0, 7) == 7

    def request(source: Source) -> tuple[int, int, int, tuple[int, ...], int]:
        prompt = choice(source, PROMPTS)
        chunk = prompt if source.integer(0, 2) else source.integer(1, min(prompt, 20))
        enters = source.integer(1, 3) if source.integer(0, 2) == 2 else 0
        rounds = source.integer(1, MAX_ROUNDS - 3) if source.integer(0, 5) < 5 else 0
        if prefill_only:
            enters = rounds = 0
        commits = tuple(choice(source, (1, width)) if flag(source) else source.integer(1, width) for _ in range(rounds))
        return prompt, chunk, enters, commits, source.integer(0, 2**16)

    drawn = source.records(request, 1, MOST_REQUESTS)
    return InputsCase(front, warmup, width, _rows(drawn, flag(source)))


def _rows(drawn: list[tuple[int, int, int, tuple[int, ...], int]], reuse: bool) -> tuple[Request, ...]:
    """Pool rows from the top; with ``reuse`` a request takes the row of one that left."""
    made: list[Request] = []
    free: dict[int, int] = {}  # row: round from which it is free
    for i, (prompt, chunk, enters, commits, seed) in enumerate(drawn):
        left = [row for row, end in free.items() if end <= enters] if reuse else []
        row = left[0] if left else 20 - 2 * i
        free[row] = max(free.get(row, 0), enters + max(len(commits), 1))
        made.append(Request(prompt, chunk, enters, commits, row, seed))
    return tuple(made)
