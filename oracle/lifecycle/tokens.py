"""Which tokens a request has, without writing them down.

Tokens at one position are the same for two requests exactly as far as they share a
prefix. An *author* is whoever chose tokens first: a request, or a request anew after
tokens of it that nobody was told were given up. So a prefix is named by the author of
its last token and its length, and this name, as one number, is the stamp that every
state and every entry of an attention cache carries: two prefixes are equal exactly
when their stamps are.
"""

from __future__ import annotations

MAX_TOKENS = 1_000_000  # of one request; a stamp is author * MAX_TOKENS + length
REWRITES = 64  # authors that one request may become


def stamp(author: int, length: int) -> int:
    """The name of a prefix; 0 for the empty one."""
    return author * MAX_TOKENS + length if length else 0


def length_of(name: int) -> int:
    return name % MAX_TOKENS


def author_of(name: int) -> int:
    return name // MAX_TOKENS


def request_of(name: int) -> int:
    """The request whose token ends the prefix."""
    return name // MAX_TOKENS // REWRITES


class Tokens:
    """The authors of a story and what each took over from whom."""

    def __init__(self) -> None:
        self._taken: dict[int, tuple[int, int]] = {}  # author -> (author before, tokens taken over)
        self._rewrites: dict[int, int] = {}

    def begin(self, request: int, source: int | None, shared: int) -> int:
        """A new author for ``request``, with the first ``shared`` tokens of author ``source``."""
        number = self._rewrites[request] = self._rewrites.get(request, -1) + 1
        # Past the last name the tokens are taken to be the same again, which no state of a story contradicts.
        author = request * REWRITES + min(number, REWRITES - 1)
        if number < REWRITES:
            self._taken[author] = (-1, 0) if source is None else (source, shared)
        return author

    def prefix(self, author: int, length: int) -> int:
        """The stamp of the first ``length`` tokens of ``author``."""
        before, taken = self._taken[author]
        while 0 < length <= taken:
            author = before
            before, taken = self._taken[author]
        return stamp(author, length)

    def entries(self, author: int, start: int, end: int) -> list[int]:
        """What an attention cache holds for the positions ``start`` to ``end``: at each the stamp of the
        prefix that ends with it."""
        parts: list[list[int]] = []
        while end > start:
            before, taken = self._taken[author]
            low = max(start, taken)
            if end > low:
                first = author * MAX_TOKENS
                parts.append(list(range(first + low + 1, first + end + 1)))
                end = low
            author = before
        return [e for part in reversed(parts) for e in part]

    def common(self, one: int, other: int) -> int:
        """How many leading tokens two authors share at most: as many as both have of
        an author that is behind both."""
        reach = self._reach(one)
        return max([0, *(min(end, reach[a]) for a, end in self._reach(other).items() if a in reach)])

    def _reach(self, author: int) -> dict[int, int]:
        """How many tokens of each author before it ``author`` took over."""
        reach, end = {}, MAX_TOKENS
        while author >= 0:
            reach[author] = end
            author, taken = self._taken[author]
            end = min(end, taken)
        return reach
