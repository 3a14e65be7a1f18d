"""A small canvas for inline SVG: boxes, lines and text, all text escaped.

Colours come from classes in the style sheet, because the content policy forbids
inline styles and the pages have a dark and a light form. Sizes are pixels.
"""

from __future__ import annotations

from typing import Any

from markupsafe import Markup, escape

from reports.html.text import clean, short

CHARACTER = 7.4  # mean width of a character at the pictures' font size, generous


class Canvas:
    """Collects shapes; ``markup`` is the finished picture, as large as its content."""

    def __init__(self) -> None:
        self._parts: list[Markup] = []
        self._width = self._height = 0.0

    def _add(self, part: Markup, right: float, bottom: float) -> None:
        self._parts.append(part)
        self._width, self._height = max(self._width, right), max(self._height, bottom)

    def box(self, x: float, y: float, width: float, height: float, look: str = "box") -> None:
        shape = Markup('<rect x="{:.0f}" y="{:.0f}" width="{:.0f}" height="{:.0f}" rx="4" class="{}"/>')
        self._add(shape.format(x, y, width, height, look), x + width, y + height)

    def circle(self, x: float, y: float, radius: float, look: str = "box") -> None:
        shape = Markup('<circle cx="{:.0f}" cy="{:.0f}" r="{:.0f}" class="{}"/>')
        self._add(shape.format(x, y, radius, look), x + radius, y + radius)

    def line(self, x: float, y: float, to_x: float, to_y: float, look: str = "line") -> None:
        shape = Markup('<line x1="{:.0f}" y1="{:.0f}" x2="{:.0f}" y2="{:.0f}" class="{}"/>')
        self._add(shape.format(x, y, to_x, to_y, look), max(x, to_x), max(y, to_y))

    def arrow(self, x: float, y: float, to_x: float, to_y: float, look: str = "line") -> None:
        """A straight arrow along one axis."""
        self.line(x, y, to_x, to_y, look)
        along_x, along_y = _sign(to_x - x) * 7, _sign(to_y - y) * 7
        side_x, side_y = (4, 0) if along_y else (0, 4)
        points = f"{to_x:.0f},{to_y:.0f} "
        points += " ".join(
            f"{to_x - along_x + s * side_x:.0f},{to_y - along_y + s * side_y:.0f}" for s in (1, -1)
        )  # fmt: skip
        self._add(Markup('<polygon points="{}" class="{} head"/>').format(points, look), to_x, to_y)

    def text(self, x: float, y: float, value: Any, look: str = "", anchor: str = "start", most: int = 60) -> None:
        """``value`` with its baseline at ``y``, cut to ``most`` characters."""
        said = short(clean(str(value)), most)
        shape = Markup('<text x="{:.0f}" y="{:.0f}" text-anchor="{}" class="{}">{}</text>')
        width = len(said) * CHARACTER
        right = x + {"start": width, "middle": width / 2, "end": 0}[anchor]
        self._add(shape.format(x, y, anchor, look, escape(said)), right, y + 4)

    def markup(self, label: str) -> Markup:
        """The picture; ``label`` is what a screen reader says."""
        width, height = self._width + 12, self._height + 8
        head = Markup(
            '<svg class="picture" role="img" aria-label="{}" '
            'width="{:.0f}" height="{:.0f}" viewBox="-4 0 {:.0f} {:.0f}">'
        ).format(clean(label), width, height, width, height)
        return head + Markup("").join(self._parts) + Markup("</svg>")


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
