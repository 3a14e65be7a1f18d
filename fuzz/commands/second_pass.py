"""The finds of a campaign once more, under a sanitizer: which kernel and which line.

A find's verdict stands; what the tool says is added to it, as an event of its own and
as lines under the find. A find that the tool says nothing about is told so too: then
the kernels stayed inside their memory and only the values are wrong.
"""

from __future__ import annotations

from fuzz.adapter import load
from fuzz.commands.session import started
from fuzz.events import Events
from fuzz.executor import execute
from fuzz.sanitize import FIELD
from fuzz.supervisor import Session
from fuzz.target_state import Found
from fuzz.verdict import Identity

NOTHING = "nothing to report"


def second_pass(
    session: Session, tool: str, finds: list[Found], said: dict[Identity, list[str]], events: Events
) -> None:
    """Run each find alone under ``tool``, on the engine of ``session``, and fill ``said``,
    which is also right when the pass is stopped early. Raises SessionError."""
    if not finds:
        return
    adapters = load(session.launch.engine)
    with started(session.launch, tool, alone=True) as watched:
        for found in finds:
            verdict = execute(watched, adapters[found.identity.target], found.belief.case, found.belief.how)
            reported = verdict.evidence.get(FIELD, {})
            said[found.identity] = reported.get("said") or [f"{tool}: {NOTHING}, {verdict.kind} there"]
            events.emit(
                "sanitized", target=found.identity.target, contract=found.identity.contract,
                identity=vars(found.identity), tool=tool, verdict=str(verdict.kind), said=reported.get("said", []),
                text=reported.get("text", ""),
            )  # fmt: skip
