"""How a case is shown to a target: never part of the right answer.

Row order and padding are applied to the records, so that they mean the same for
every contract; memory layout, repetition, streams and graphs are the worker's. A
divergence that appears only under one presentation is still a divergence, and the
frozen case remembers which.
"""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass
from typing import Any

from oracle.contract import Contract


@dataclass(frozen=True)
class Presentation:
    """strided  tensors interleaved with filler
    order    seed of a permutation of the records, 0 for the given order
    padding  inert records appended (contracts that define one)
    repeat   run again in one process and compare bit by bit: twice, on a GPU 20 times
    stream   production runs on a side stream of the GPU that is late
    graph    production replays a CUDA graph that was captured with another batch of the
             same shape in the same buffers; with padding, a smaller one in a larger graph
    """

    strided: bool = False
    order: int = 0
    padding: int = 0
    repeat: bool = False
    stream: bool = False
    graph: bool = False

    def names(self) -> list[str]:
        """What deviates from the plain presentation, in words."""
        words = [n for n in ("strided", "repeat") if getattr(self, n)]
        words += [f"order {self.order}"] if self.order else []
        words += [f"padding {self.padding}"] if self.padding else []
        return words + [word for word, shown in (("side stream", self.stream), ("graph", self.graph)) if shown]


PLAIN = Presentation()
ON_DEVICE = ("stream", "graph")  # presentations that only a GPU has


class NoOtherBatch(ValueError):
    """There is no second batch of the same shape that a graph could be captured with."""


def permutation(size: int, seed: int) -> list[int]:
    """The order in which the records are shown; seed 0 changes nothing."""
    order = list(range(size))
    if seed:
        random.Random(seed).shuffle(order)
    return order


def _order(contract: Contract, size: int, how: Presentation) -> list[int]:
    """The permutation for ``contract``: none where the order has a meaning."""
    return permutation(size, 0 if contract.ordered else how.order)


def present(contract: Contract, case: Any, how: Presentation) -> Any:
    """The case with its records permuted and padded."""
    if not (how.order or how.padding):
        return case
    records = list(getattr(case, contract.records))
    shown = [records[i] for i in _order(contract, len(records), how)]
    if how.padding and contract.padding is not None and records:
        shown += [contract.padding(case)] * how.padding
    return dataclasses.replace(case, **{contract.records: tuple(shown)})


def other_batch(contract: Contract, case: Any, how: Presentation) -> Any:
    """The batch that a graph is captured with before it is replayed for ``case``: the same
    records, so that every shape is the same, each in another row. The padding of ``case``
    comes last and goes first here: its rows hold what live requests left. Raises NoOtherBatch."""
    if contract.ordered:
        raise NoOtherBatch("a graph needs a second batch, and here the order of the records has a meaning")
    shown = present(contract, case, how)
    records = tuple(getattr(shown, contract.records))
    turn = max(1, len(records) - len(getattr(case, contract.records)))
    turned = records[-turn:] + records[:-turn]
    if turned == records:
        raise NoOtherBatch("a graph needs a second batch, and these records are one or all alike")
    return dataclasses.replace(shown, **{contract.records: turned})


def undo(contract: Contract, case: Any, how: Presentation, observed: dict[str, Any]) -> dict[str, Any]:
    """Put per-request observations back into the order of the case and drop
    those of padding. Wrong lengths are left for the judgement to find."""
    if not (how.order or how.padding):
        return observed
    size = len(getattr(case, contract.records))
    padding = how.padding if contract.padding is not None and size else 0
    order = _order(contract, size, how)
    restored = dict(observed)
    for field in contract.fields:
        seen = observed.get(field.name)
        if field.axis != "request" or seen is None or len(seen) != size + padding:
            continue
        back: list[Any] = [None] * size
        for place, original in enumerate(order):
            back[original] = seen[place]
        restored[field.name] = back
    return restored
