"""Cases of draft.mtp_chain. Simplest first: one request, one chained window step, no graph.

Captured sizes and the number of requests come from few values, so that a batch often just
fits, is one too large, or fills half of a graph.
"""

from __future__ import annotations

from dataclasses import replace

from fuzz.strategies.source import Source, choice, flag
from oracle.contract import InvalidCase
from oracle.draft.mtp_chain_case import (
    BEAM,
    FROZEN,
    MAX_COMMITTED,
    TABLE_WIDTH,
    WINDOW,
    MtpChainCase,
    Request,
    beams_of,
)

CAPTURED = ((), (1,), (2,), (1, 2, 4), (), (2, 4), (4, 8))
MOST = 6  # requests of a round
SEEDS = 100  # tried for scores that float32 can order; most have them


def structure(source: Source) -> MtpChainCase:
    form = choice(source, (WINDOW, WINDOW, BEAM, WINDOW, FROZEN))
    window = form == WINDOW
    steps = choice(source, (2, 3, 1, 4)) if source.integer(0, 3) else source.integer(2, 5)
    width = 1 if window else choice(source, (1, 2, 4))
    chained = not (window and flag(source))
    captured = choice(source, CAPTURED) if window else ()
    prompt = window and not captured and flag(source)
    most = MAX_COMMITTED if prompt else steps + 1
    last = TABLE_WIDTH - steps * width - max(steps + 1, most)

    def request(source: Source) -> Request:
        committed = choice(source, (1, most)) if source.integer(0, 2) == 0 else source.integer(1, most)
        return Request(steps + source.integer(0, last - steps), committed, 1, source.integer(0, 2**16))

    earlier = source.records(request, 0, MOST) if window and not prompt and flag(source) else []
    # The rows of the round before are handed out again, or follow a gap.
    shift = 0 if flag(source) else 1
    backwards = flag(source)
    requests = [replace(r, pool_row=1 + 2 * i) for i, r in enumerate(source.records(request, 1, MOST))]
    return MtpChainCase(
        form,
        chained,
        steps,
        width,
        captured,
        tuple(replace(r, pool_row=1 + 2 * i + shift) for i, r in enumerate(earlier)),
        tuple(_settled(form, steps, width, r) for r in (requests[::-1] if backwards else requests)),
    )


def _settled(form: str, steps: int, width: int, r: Request) -> Request:
    """``r`` with the next seed at which no two continuations have almost the same score."""
    case = MtpChainCase(form, True, steps, width, (), (), (r,))
    for _ in range(SEEDS if width > 1 else 0):
        try:
            beams_of(case, r)
        except InvalidCase:
            r = replace(r, seed=r.seed + 1)
            continue
        break
    return r
