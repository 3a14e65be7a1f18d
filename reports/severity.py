"""How bad a divergence is, and whether production can get there.

One table, worst first, so that every report sorts alike. What decides is what a user
of the engine would notice: wrong state writes wrong text for ever and nobody is told;
an exception is at least loud. A mapping by contract and field cannot know each case;
it is an order in which to read, not a judgement.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STATE, TOKEN, OUTSIDE, CRASH, REFUSED, DOUBT = range(6)
NAMES = ("silent wrong state", "wrong token", "out of bounds", "crash", "refused input", "to be doubted")
MEANINGS = (
    "a state or length that later rounds build on is wrong, and nothing says so",
    "a token is emitted, accepted or drafted that the rule does not give",
    "something outside the output buffers was read or written",
    "the process died or hung, or production code raised an error it did not mean to",
    "production raised an error of the kind that refuses an input",
    "not shown to be production's fault: the reference or the adapter may be wrong",
)
OUTSIDE_FIELDS = frozenset({"outside", "outside_untouched", "outside_writes"})
OUTSIDE_KINDS = frozenset({"written_outside", "outside_block", "source_written"})
OUTSIDE_TOOL = "memcheck:"
TOKEN_FIELDS = frozenset({"bonus_token", "emitted", "predicts"})
TOKEN_FAMILIES = ("verify.", "draft.")
REFUSALS = frozenset({"AssertionError", "NotImplementedError", "ValueError"})
HOSTILE = "hostile input only"


def of(verdict: str, identity: Mapping[str, Any], contract: str) -> int:
    """Rank of a divergence, 0 the worst; an index of ``NAMES``."""
    field, kind = str(identity["field"]), str(identity["kind"])
    if verdict == "ORACLE_SUSPECT":
        return DOUBT
    if kind.startswith("raised:"):
        return REFUSED if kind.split(":")[1] in REFUSALS else CRASH
    if verdict in ("CRASH", "HANG"):
        return CRASH
    if field in OUTSIDE_FIELDS or kind in OUTSIDE_KINDS or kind.startswith(OUTSIDE_TOOL):
        return OUTSIDE
    if field in TOKEN_FIELDS or contract.startswith(TOKEN_FAMILIES):
        return TOKEN
    return STATE
