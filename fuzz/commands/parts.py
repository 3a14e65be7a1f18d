"""A campaign on several devices: cut into parts, worked off by lanes, put together again.

A campaign that is bounded by time alone has one part a lane: all of them last as long
as the budget. One that shows each target a fixed number of cases is cut finer, because
targets differ by a factor of a hundred in what a case costs, and a lane that is done
takes the next part.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from fuzz.adapter import Adapter
from fuzz.campaign import Campaign, Options
from fuzz.commands.runs import Ending, ending
from fuzz.database import Store
from fuzz.known import Known
from fuzz.lanes import Lane
from fuzz.shard import Shard
from fuzz.target_state import TargetState

PARTS_A_LANE = 8  # of a fixed campaign: the last one to end is then a small share of a lane's work


@dataclass(frozen=True)
class Worked:
    """What one lane found; the adapters stay behind, for they are functions."""

    states: dict[str, TargetState]
    lost_store: str | None = None


def split(adapters: Sequence[Adapter], options: Options, lanes: int) -> list[Options]:
    """The options of each part; together they are the campaign."""
    own, seed = options.shard.share(adapters, options.seed)
    count, most = lanes, options.max_examples
    if most is not None:
        count = PARTS_A_LANE * lanes
        if count > len(own):  # several parts have the same target, as many for each
            count = len(own) * min(most, -(-count // len(own)))
    shards = [Shard(n + 1, count) for n in range(count)]
    return [replace(options, seed=seed, max_examples=s.examples(len(own), most), shard=s) for s in shards]


def work(
    lane: Lane, adapters: Sequence[Adapter], parts: list[Options], options: Options, known: list[Known], store: Store
) -> tuple[Worked, Ending]:
    """Take part after part until none is left or the budget is spent. Parts that wait get their
    share of the time too; one that its own share was too short for goes on behind them."""
    own, _ = options.shard.share(adapters, options.seed)
    until, campaigns, states = time.monotonic() + options.max_seconds, [], {}

    def tell(_: Campaign) -> None:
        lane.tell(*counts(s for c in campaigns for s in c.states))

    with ending(say=False) as end:  # the supervisor says it
        while (taken := lane.next_part()) is not None and (left_s := until - time.monotonic()) > 0:
            part, waiting = taken
            fair_s = left_s if options.max_examples is None else left_s * min(1.0, lane.lanes / waiting)
            options_of_part = replace(parts[part], max_seconds=fair_s)
            campaigns.append(Campaign(lane.session, own, options_of_part, lane.events, known, tell, store))
            campaigns[-1].run(whole=False)
        while (cut := [c for c in campaigns if not c.finished]) and (left_s := until - time.monotonic()) > 0:
            for campaign in cut:
                campaign.go_on(left_s / len(cut))
    for campaign in campaigns:
        for state in campaign.states:
            _add(states, state)
    return Worked({name: replace(s, adapter=None) for name, s in states.items()}, store.lost), end


def merged(
    results: Iterable[Worked], adapters: Sequence[Adapter], options: Options, unsupported: dict[str, str]
) -> list[TargetState]:
    """What each target was shown by all lanes."""
    own, _ = options.shard.share(adapters, options.seed)
    by_id = {a.id: a for a in own}
    states = {a.id: TargetState(a, reason=unsupported.get(a.id)) for a in own}
    for result in results:
        for name, state in result.states.items():
            _add(states, replace(state, adapter=by_id[name]))
    return list(states.values())


def counts(states: Iterable[TargetState]) -> tuple[int, int, int]:
    """Cases executed, behaviours reached and divergences found so far."""
    states = list(states)
    behaviours = len({(s.adapter.contract, b) for s in states for b in s.behaviours})
    return sum(s.executed for s in states), behaviours, sum(len(s.found) for s in states)


def _add(states: dict[str, TargetState], state: TargetState) -> None:
    name = state.adapter.id
    if name in states:
        states[name].add(state)
    else:
        states[name] = state
