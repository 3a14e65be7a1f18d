"""The unit interval cut into what each token gets, and the coin that falls on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from reports.html.svg import Canvas

WIDTH, HEIGHT = 760, 40
LEAST_LABELLED = 34  # pixels of a stretch that has room for its name
MAX_STRETCHES = 400


@dataclass(frozen=True)
class Stretch:
    """What a coin on a part of the interval leads to."""

    name: Any
    mass: Fraction
    words: str


def bar(canvas: Canvas, y: float, stretches: Sequence[Stretch], coin: float, must: Any, seen: Any, title: str) -> float:
    """Draw the interval from 0 to 1 and return the height below it. The stretch named
    ``must`` is what the coin chooses, the one named ``seen`` what production chose."""
    canvas.text(0, y + 14, title, "strong", most=120)
    y += 46
    at = Fraction(0)
    below = y + HEIGHT + 16
    for number, stretch in enumerate(stretches[:MAX_STRETCHES]):
        x, width = float(at) * WIDTH, float(stretch.mass) * WIDTH
        chosen = "kept" if stretch.name == must else "wrong" if stretch.name == seen else ""
        canvas.box(x, y, max(width, 1.5), HEIGHT, f"box {chosen or ('odd' if number % 2 else '')}")
        if width >= LEAST_LABELLED:
            canvas.text(x + width / 2, y + 25, stretch.words, "", "middle", max(int(width / 7.4), 1))
        at += stretch.mass
    place = coin * WIDTH
    canvas.line(place, y - 8, place, y + HEIGHT + 8, "line coin")
    anchor = "start" if place < 120 else "end" if place > WIDTH - 120 else "middle"
    canvas.text(place, y - 13, f"coin {digits(coin)}", "strong", anchor)
    canvas.text(0, below, "0", "note", "middle" if place > 20 else "start")
    canvas.text(WIDTH, below, "1", "note", "middle")
    for name, word, look in ((must, "must be", "good"), (seen, "✗ production:", "bad")):
        found = _ends(stretches, name)
        if found is not None and (look == "good" or seen != must):
            below += 20
            words = found[2].words
            canvas.text(0, below, f"{word} {words}: from {digits(found[0])} up to {digits(found[1])}", look, most=120)
    return below + 16


def _ends(stretches: Sequence[Stretch], name: Any) -> tuple[Fraction, Fraction, Stretch] | None:
    at = Fraction(0)
    for stretch in stretches:
        if stretch.name == name:
            return at, at + stretch.mass, stretch
        at += stretch.mass
    return None


def digits(number: Any) -> str:
    """A number with the digits that tell two neighbouring float32 apart."""
    return f"{float(number):.9g}"
