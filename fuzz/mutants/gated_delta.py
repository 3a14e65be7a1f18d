"""Mutants of recurrence.gated_delta: those of every delta rule."""

from __future__ import annotations

from fuzz.mutants.delta_rule import SHARED

MUTANTS = SHARED
