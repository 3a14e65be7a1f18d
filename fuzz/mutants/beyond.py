"""The wrong observation nearest to a right one: a number just outside its bound.

Every contract of numbers has a mutant of it, because a bound that lets it pass is no bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oracle.legal import Within

BEYOND = 1.5  # bounds that the moved cell is away


def beyond(legal: list[Any], observed: list[np.ndarray]) -> list[np.ndarray]:
    """``observed`` with one cell moved: of the first request that has a bound, the cell with
    the largest one. Unchanged where nothing has a bound."""
    for i, must in enumerate(legal):
        if not isinstance(must, Within):
            continue
        bounds = np.where(np.isfinite(must.error), must.error, 0.0)
        if bounds.any():
            cell = np.unravel_index(int(bounds.argmax()), bounds.shape)
            moved = np.array(observed[i], dtype=np.float64)
            moved[cell] = must.value[cell] + BEYOND * bounds[cell]
            return [*observed[:i], moved, *observed[i + 1 :]]
    return observed
