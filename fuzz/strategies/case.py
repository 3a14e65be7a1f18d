"""What one draw of a campaign is: a case and how it is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fuzz.presentation import Presentation
from fuzz.strategies.registry import structure_of
from fuzz.strategies.source import Source

PLAINLY, ON_STREAM, IN_GRAPH = range(4), 4, 5  # the last choice on a GPU: what costs more is drawn less often


def shown_case(contract: str, device: str = "cpu") -> Callable[[Source], tuple[Any, Presentation]]:
    """A builder of (case, presentation). The presentation is drawn last and its
    simplest form is the plain one, so it shrinks away unless it matters. What only a
    GPU has is one more choice behind all others: the choices of a CPU stay what they are."""
    structure = structure_of(contract)

    def build(source: Source) -> tuple[Any, Presentation]:
        case, how = structure(source), presentation(source)
        return case, how if device == "cpu" else on_device(source, how)

    return build


def on_device(source: Source, how: Presentation) -> Presentation:
    """``how``, now and then on a side stream or in a graph; then it is not repeated too."""
    way = source.integer(0, IN_GRAPH)
    return how if way in PLAINLY else replace(how, repeat=False, stream=way == ON_STREAM, graph=way == IN_GRAPH)


def without_device(choices: Sequence[int]) -> list[int]:
    """The choices of a GPU that lead to the same case without side stream and graph."""
    return [*choices[:-1], PLAINLY[0]]


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
