"""Numbers that make a copied block readable, for commit.aligned_states.

Within a request every cell of every block it holds has a positive number: first those of the
recurrent states, layer by layer and column by column, then those of the convolution entries, input
by input. After a call a cell is read back as the number of the cell whose contents it holds. Numbers
are a request's own, so neither the order of a batch nor its padding changes them.

In memory a cell is a bit pattern of its tensor's dtype that counts by block (``pattern``); pattern 0
is given to nobody.
"""

from __future__ import annotations

from typing import Any

import numpy as np

FOREIGN = -1  # neither the contents of a cell nor anything that was ever there
OTHERS = -2  # the contents of a block that this request does not hold


def shapes(case: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """One entry of a recurrent state, flat, and one of a convolution (inputs, channels). ``case`` is the
    dataclass or an adapter's columns."""
    return (int(np.prod(case.state_entry)),), (case.window + case.drafts, case.channels)


def own_numbers(case: Any, held: int) -> tuple[np.ndarray, np.ndarray]:
    """States int64 [layers, held, cells] and windows [layers, held, inputs, channels] of a request that
    holds ``held`` blocks."""
    state, window = ((case.layers, held, *shape) for shape in shapes(case))
    first, count = int(np.prod(state)), int(np.prod(window))
    numbers = np.arange(1, 1 + first + count, dtype=np.int64)
    return numbers[:first].reshape(state), numbers[first:].reshape(window)


def pattern(case: Any, blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """What lies in memory: states [layers, blocks, cells], windows [layers, blocks, inputs, channels]."""
    made = ((case.layers, blocks, *shape) for shape in shapes(case))
    return tuple(np.arange(1, 1 + int(np.prod(s)), dtype=np.int64).reshape(s) for s in made)


def read(case: Any, blocks: int, held: list[int], patterns: np.ndarray, *, window: bool) -> list[int]:
    """``patterns`` of some cells as numbers of the request whose columns hold the blocks ``held``."""
    cells = int(np.prod(shapes(case)[window]))
    known = (patterns >= 1) & (patterns <= case.layers * blocks * cells)
    layer, rest = np.divmod(patterns - 1, blocks * max(cells, 1))
    block, cell = np.divmod(rest, max(cells, 1))
    place = np.full(blocks, -1, np.int64)
    place[held] = np.arange(len(held))
    before = case.layers * len(held) * int(np.prod(shapes(case)[0])) if window else 0
    at = place[np.where(known, block, 0)]
    numbers = 1 + before + (layer * len(held) + at) * cells + cell
    return [int(n) for n in np.where(known, np.where(at >= 0, numbers, OTHERS), FOREIGN).ravel()]


def describe(case: Any, held: list[int], number: int) -> str:
    """What a cell that reads ``number`` holds, for a request that holds the columns ``held``."""
    if number == OTHERS:
        return "what another block held"
    state, window = own_numbers(case, len(held))
    if not 1 <= number <= state.size + window.size:
        return "something that no block ever held"
    if number <= state.size:
        layer, at, _ = np.unravel_index(number - 1, state.shape)
        return f"the state of layer {layer} in column {held[at]}"
    layer, at, index, _ = np.unravel_index(number - 1 - state.size, window.shape)
    return f"input {index} of layer {layer} in column {held[at]}"
