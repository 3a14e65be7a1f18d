"""What one draw of a campaign is: a case and how it is shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuzz.presentation import Presentation
from fuzz.strategies.registry import structure_of
from fuzz.strategies.source import Source


def shown_case(contract: str) -> Callable[[Source], tuple[Any, Presentation]]:
    """A builder of (case, presentation). The presentation is drawn last and its
    simplest form is the plain one, so it shrinks away unless it matters."""
    structure = structure_of(contract)

    def build(source: Source) -> tuple[Any, Presentation]:
        return structure(source), presentation(source)

    return build


def presentation(source: Source) -> Presentation:
    """Half of the draws are plain; the rest mix the ways of showing a case."""
    if source.integer(0, 1) == 0:
        return Presentation()
    return Presentation(
        strided=source.integer(0, 1) == 1,
        order=source.integer(0, 3),
        padding=source.integer(0, 3),
        repeat=source.integer(0, 3) == 3,
    )
