"""Two implementations shown the same cases: a difference between them is the find.

For whoever asks whether a clean-up changed behaviour. `Sides` stands where a campaign
has its session, so that everything that makes a find believable works for a difference
too: fresh processes, shrinking with the same identity, a sibling on which the sides do
not differ, a frozen case. What a difference is stands in ``difference.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from fuzz.adapter import Adapter
from fuzz.difference import Side, compare
from fuzz.executor import interpret
from fuzz.presentation import Presentation, undo
from fuzz.supervisor import Launch, Session
from fuzz.verdict import Verdict
from oracle.contract import Contract


@dataclass(frozen=True)
class Pair:
    """A left and a right target of one contract, and the fields that both observe."""

    adapter: Adapter
    left: Adapter
    right: Adapter
    shared: tuple[str, ...]


def pairs(left: Iterable[Adapter], right: Iterable[Adapter], *, same_engine: bool) -> list[Pair]:
    """What to compare. Of two releases of one engine each target meets itself; else
    each target meets every other one of its contract."""
    others = list(right)
    found = []
    for a in left:
        for b in others:
            fits = a.id == b.id if same_engine else a.id != b.id
            if a.contract == b.contract and fits:
                found.append(_pair(a, b))
    return found


def matching(adapters: Iterable[Adapter], glob: str) -> list[Adapter]:
    """The targets of the right side when ``--against`` is a pattern."""
    return [a for a in adapters if fnmatchcase(a.id, glob)]


def _pair(left: Adapter, right: Adapter) -> Pair:
    def accepts(columns: Any) -> str | None:
        return left.accepts(columns) or right.accepts(columns)

    symbol = left.symbol
    if left.id != right.id:
        engine = "" if left.engine == right.engine else f"{right.engine}:"
        symbol += f" against {engine}{right.module}:{right.symbol}"
    shared = tuple(name for name in left.observes if name in right.observes)
    return Pair(replace(left, symbol=symbol, observes=shared, accepts=accepts), left, right, shared)


class Sides:
    """Two sessions (or one, for two targets of one engine) where a campaign has one."""

    history: tuple[dict[str, Any], ...] = ()  # which side a find is about is not known yet

    def __init__(self, left: Session, right: Session, pairs: list[Pair]):
        self.left, self.right = left, right
        self.pairs = {p.adapter.id: p for p in pairs}

    @property
    def launch(self) -> Launch:
        return self.left.launch

    @property
    def ready(self) -> dict[str, Any]:
        """What the left session says of itself; a pair is unsupported when a side is."""
        unsupported = {i: reason for i, p in self.pairs.items() if (reason := self._missing(p)) is not None}
        places = {i: self.left.ready["places"].get(p.left.id) for i, p in self.pairs.items()}
        return self.left.ready | {"unsupported": unsupported, "places": places}

    @property
    def workers(self) -> int:
        """Workers that either side has had."""
        return self.left.workers + (self.right.workers if self.right is not self.left else 0)

    @property
    def direct(self) -> bool:
        """Whether a fresh process costs an import."""
        return self.left.direct

    def sides(self, pair: Pair) -> tuple[Side, Side]:
        """Both sides by name: the release, or of one release the target."""
        labels = tuple(s.launch.label for s in (self.left, self.right))
        targets = (pair.left, pair.right)
        names = labels if labels[0] != labels[1] else tuple(f"{a.module}:{a.symbol}" for a in targets)
        return tuple(Side(n, e, a.id) for n, e, a in zip(names, labels, targets, strict=True))

    def _missing(self, pair: Pair) -> str | None:
        if not pair.shared:
            return "the two targets observe no field in common"
        for session, side in zip((self.left, self.right), self.sides(pair), strict=True):
            reason = session.ready["unsupported"].get(side.target)
            if reason is not None:
                return f"{side.name}: {reason}"
        return None

    def call(self, request: dict[str, Any]) -> tuple[Any, Any]:
        """The answers of both sides to one case."""
        pair = self.pairs[request["target"]]
        return (
            self.left.call(request | {"target": pair.left.id}),
            self.right.call(request | {"target": pair.right.id}),
        )

    def stream(self, requests: Iterable[dict[str, Any]]) -> Iterator[tuple[Any, Any]]:
        """The answers of both sides to several cases, one after the other."""
        return map(self.call, requests)

    def fresh(self) -> None:
        """The next call of either side starts in a new process."""
        self.left.fresh()
        self.right.fresh()

    def interpret(
        self, contract: Contract, adapter: Adapter, case: Any, how: Presentation, answers: tuple[Any, Any]
    ) -> Verdict:
        """Turn both answers into the verdict of the pair."""
        pair = self.pairs[adapter.id]
        shared = [_shared(answer, pair.shared) for answer in answers]
        verdicts = [interpret(contract, a, case, how, s) for a, s in zip((pair.left, pair.right), shared, strict=True)]
        seen = [values(contract, case, how, answer) for answer in shared]
        found = compare(contract, adapter, self.sides(pair), tuple(verdicts), tuple(seen))
        return replace(found, compile_s=sum(v.compile_s for v in verdicts))


def _shared(answer: Any, names: tuple[str, ...]) -> Any:
    if isinstance(answer, dict) and answer.get("status") == "ok":
        return answer | {"observed": {k: v for k, v in answer["observed"].items() if k in names}}
    return answer


def values(contract: Contract, case: Any, how: Presentation, answer: Any) -> dict[str, Any] | None:
    """What an answer observed, in the order of the case; ``None`` without values."""
    if not isinstance(answer, dict) or answer.get("status") != "ok" or answer.get("unstable"):
        return None
    return undo(contract, case, how, answer["observed"])
