"""Cases of recurrence.gated_delta."""

from __future__ import annotations

from fuzz.strategies import delta_rule
from fuzz.strategies.source import Source
from oracle.recurrence.delta_case import DeltaCase
from oracle.recurrence.gated_delta import GATES


def structure(source: Source) -> DeltaCase:
    """One case. See ``delta_rule``."""
    return DeltaCase(**delta_rule.fields(source, GATES))
