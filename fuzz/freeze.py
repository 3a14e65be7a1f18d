"""A find as a frozen case: named by target and kind, with where and how it was found."""

from __future__ import annotations

import re
import time
from pathlib import Path

from fuzz.adapter import Adapter
from fuzz.believe import Belief
from fuzz.corpus import make, write
from fuzz.frozen import ENGINE, CorpusError
from fuzz.supervisor import Session

MAX_SLUG = 80  # characters, as the schema of a frozen case asks


def freeze(session: Session, seed: int, adapter: Adapter, belief: Belief, out: Path, *, listed: bool) -> Path | None:
    """Write the file of a find under ``out``. A listed one is frozen as it was drawn, so that a report
    can show it; ``None`` when the case is too large for a file, and it is still reported."""
    try:
        return _write(session, seed, adapter, belief, out, {"listed": "as it was drawn, not shrunk"} if listed else {})
    except CorpusError:
        return None


def _write(session: Session, seed: int, adapter: Adapter, belief: Belief, out: Path, more: dict[str, str]) -> Path:
    # Of two sides that were compared, the file names the one that the reference does
    # not take: there a replay fails.
    launch = session.launch
    where = {"engine": launch.label, "target": adapter.id}
    where |= belief.verdict.evidence.get("blamed", {})
    if not re.match(ENGINE, where["engine"]):
        del where["engine"]  # a checkout: a file must not make a replay run code from a path
    provenance = {
        **where,
        "device": session.ready.get("device", "cpu"),
        "date": time.strftime("%Y-%m-%d"),
        "seed": seed,
        "identity": str(belief.verdict.identity),
        **more,
    }
    # The symbol is in it, so that two targets that share a case keep a file each.
    words = f"{adapter.module} {adapter.symbol} {belief.verdict.identity.kind}".lower()
    frozen = make(
        adapter.contract,
        belief.case,
        slug="-".join(re.findall("[a-z0-9]+", words))[:MAX_SLUG].strip("-"),
        reason=belief.words,
        provenance=provenance,
        presentation=belief.how,
    )
    return write(frozen, out / "found")
