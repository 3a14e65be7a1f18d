"""How a case is shown to a target: never part of the right answer.

Row order and padding are applied to the records, so that they mean the same for
every contract; memory layout and repetition are the worker's. A divergence that
appears only under one presentation is still a divergence, and the frozen case
remembers which.
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
    repeat   run twice in one process and compare bit by bit
    """

    strided: bool = False
    order: int = 0
    padding: int = 0
    repeat: bool = False

    def names(self) -> list[str]:
        """What deviates from the plain presentation, in words."""
        words = [n for n in ("strided", "repeat") if getattr(self, n)]
        words += [f"order {self.order}"] if self.order else []
        return words + ([f"padding {self.padding}"] if self.padding else [])


PLAIN = Presentation()


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
