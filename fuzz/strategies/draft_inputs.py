"""Cases of commit.draft_inputs. Simplest first: one request, four rows, one draft."""

from __future__ import annotations

from dataclasses import replace

from fuzz.strategies.source import Source, choice, flag
from oracle.commit.draft_inputs import FORMS, MAX_DRAFTS, MAX_ROWS, PAGES, DraftInputsCase, Request


def structure(source: Source) -> DraftInputsCase:
    """One case; the position is drawn as a distance to a page boundary or freely."""
    form = choice(source, FORMS)
    drafts = choice(source, (1, 2, 1, 4, 7, 1, MAX_DRAFTS)) if source.integer(0, 3) else source.integer(1, MAX_DRAFTS)
    page = choice(source, (4, 16, 1, 2, 64))
    last = PAGES * page - drafts - 1

    def request(source: Source) -> Request:
        rows = choice(source, (4, 1, 2, 8, 64)) if source.integer(0, 3) else source.integer(1, MAX_ROWS)
        committed = choice(source, (1, rows)) if source.integer(0, 2) == 0 else source.integer(1, rows)
        if source.integer(0, 1):
            boundary = source.integer(1, PAGES - 1) * page
            pre = boundary - committed + source.integer(-1, 1)
        else:
            pre = source.integer(0, PAGES * page)
        rows = min(rows, last)
        committed = min(committed, rows)
        return Request(max(0, min(pre, last - rows)), rows, committed, 1, source.integer(0, 2**16))

    backwards = flag(source)
    requests = [replace(r, pages=1 + 2 * i) for i, r in enumerate(source.records(request, 1, 6))]
    return DraftInputsCase(form, drafts, page, tuple(requests[::-1] if backwards else requests))
