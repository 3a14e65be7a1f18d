"""Cases of recurrence.kda."""

from __future__ import annotations

from fuzz.strategies import delta_rule
from fuzz.strategies.source import Source
from oracle.recurrence.kda import GATES, KdaCase

LOWER_BOUND = -5.0  # what published models use


def structure(source: Source) -> KdaCase:
    """One case. See ``delta_rule``."""
    made = delta_rule.fields(source, GATES)
    return KdaCase(**made, lower_bound=LOWER_BOUND if made["gate"] == "bounded" else 0.0)
