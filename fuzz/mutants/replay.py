"""Mutants of recurrence.replay: the machine of ``replay_machine`` with one wrong decision."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from fuzz.mutants.beyond import BEYOND, beyond
from fuzz.mutants.mutant import Mutant
from fuzz.mutants.replay_machine import Machine
from oracle.recurrence.replay import bounded
from oracle.recurrence.replay_case import INT32_ELEMENTS, NONE, ReplayCase, entry_shape
from oracle.recurrence.replay_walk import prepared, softplus


class _RejectedFolded(Machine):
    def committed(self, r, j):
        return r.rounds[j].length


class _CurrentForgotten(Machine):
    def committed(self, r, j):
        return r.rounds[j].accepted - 1


class _WrapForgotten(Machine):
    def written(self, row, t):
        place = self.base[row] + self.write[row] + t
        return place if place < self.ring else None


class _ReadFromStart(Machine):
    def places(self, row, count):
        return list(range(count))


class _FoldedTwice(Machine):
    def folded(self, row):
        if self.case.operation == "every":
            super().folded(row)


class _FoldedLate(Machine):
    def full(self, row, saves):
        if self.case.operation == "circular" and self.case.fold == "capacity":
            return self.write[row] + self.case.window > self.case.ring
        return super().full(row, saves)


class _LastRecordForgotten(Machine):
    def fold(self, i, count):
        return super().fold(i, count - 1)


class _CutAtTheRing(Machine):
    def fold(self, i, count):
        return super().fold(i, min(count, self.case.ring))


class _RecordsNotFaded(Machine):
    def decays(self, g):
        return np.ones_like(g)


class _RecordsFadeByThemselves(Machine):
    def decays(self, g):
        return np.exp(g.sum(2, keepdims=True) - g.cumsum(2) + g)


class _StateNotFaded(Machine):
    def faded(self, state, g):
        return state


class _TrackedAtTheEnd(Machine):
    def saved(self, i, j, before):
        return self.fold(i, self.write[self.case.requests[i].row])


class _TrackedOneEarly(Machine):
    def saved(self, i, j, before):
        return self.fold(i, before + self.case.requests[i].rounds[j].track_step)


class _TrackedWithoutHistory(Machine):
    def saved(self, i, j, before):
        return self.fold(i, self.case.requests[i].rounds[j].track_step + 1)


class _NeverTracked(Machine):
    def saved(self, i, j, before):
        return self.idle


class _SlotForRow(Machine):
    def row(self, i):
        return self.case.requests[i].slot % self.case.rows


class _PlaceForRow(Machine):
    def row(self, i):
        return i % self.case.rows


class _FirstLayerForAll(Machine):
    def records(self, i, count):
        return {name: np.repeat(x[:1], self.case.layers, 0) for name, x in super().records(i, count).items()}


class _WholeRingRead(Machine):
    """Weight 0 instead of a mask: 0 times NaN is NaN."""

    def fold(self, i, count):
        hidden = self.rings["d"][:, self.row(i)] * 0.0
        return super().fold(i, count) + (hidden.sum(2)[:, :, None] if count > 0 else 0.0)


class _IdleRowFolded(Machine):
    def idle_row(self, i):
        self.kept += prod(entry_shape(self.case))


class _StateStoredInVerify(Machine):
    """Verify leaves its own last state in the pool."""

    def one_verify(self, i, j):
        super().one_verify(i, j)
        if self.case.requests[i].slot != NONE:
            self.kept += prod(entry_shape(self.case))


class _BetaOnTheValueOnly(Machine):
    def change(self, each, token, seen):
        return each.beta[:, token, :, None] * each.v[:, token] - seen


class _Inputs(Machine):
    """Prepares the tokens wrongly."""

    def prepare(self, x, shared):
        return self.wrong(prepared(self.case, x, shared), x, shared)

    def wrong(self, each, x, shared):
        raise NotImplementedError


class _HeadsInterleaved(_Inputs):
    def wrong(self, each, x, shared):
        keys, heads = self.case.key_heads, self.case.value_heads
        order = [(h % keys) * (heads // keys) for h in range(heads)]
        return replace(each, k=each.k[:, :, order], q=each.q[:, :, order])


class _BiasForgotten(_Inputs):
    def wrong(self, each, x, shared):
        a = x["a"] if self.case.gate == "channel" else x["a"][..., None]
        return replace(each, g=-np.exp(shared["A_log"])[:, None, :, None] * softplus(a))


class _ScaledTwice(_Inputs):
    def wrong(self, each, x, shared):
        return replace(each, q=each.q * self.case.key_size**-0.5)


class _FirstChannelsGate(_Inputs):
    def wrong(self, each, x, shared):
        return replace(each, g=np.broadcast_to(each.g[..., :1], each.g.shape))


class _OffsetWraps(Machine):
    def observation(self):
        seen, case = super().observation(), self.case
        slots = [s + case.gap for r in case.requests for s in (r.slot, r.track_slot) if s >= case.slots // 2]
        if case.gap and any(s * prod(entry_shape(case)) >= INT32_ELEMENTS for s in slots):
            seen["outside"] = "states: written before the buffer"
        return seen


def _beyond_the_bound(case: ReplayCase) -> dict[str, Any] | None:
    """All as it should be, but one number of a state is just outside."""
    seen = Machine(case).observation()
    states = [b.state.legal() if r.slot != NONE else None for r, b in zip(case.requests, bounded(case), strict=True)]
    return seen | {"state": beyond(states, seen["state"])}


def _mutant(name: str, fault: str, meaning: str, machine: type[Machine]) -> Mutant:
    return Mutant(name, fault, meaning, lambda case: machine(case).observation())


MUTANTS = (
    _mutant("rejected_folded", "rejected_input", "tokens that were rejected are folded too", _RejectedFolded),
    _mutant("current_forgotten", "off_by_one", "the current token is not counted as committed", _CurrentForgotten),
    _mutant("last_record_forgotten", "off_by_one", "a fold leaves its last record out", _LastRecordForgotten),
    _mutant("wrap_forgotten", "cursor", "records behind the end of the ring are lost", _WrapForgotten),
    _mutant("read_from_the_start", "cursor", "the history is read from place 0 of the ring", _ReadFromStart),
    _mutant("folded_twice", "cursor", "the cursors stay after a fold", _FoldedTwice),
    _mutant("folded_late", "cursor", "a fold waits until the next window would overflow the ring", _FoldedLate),
    _mutant("cut_at_the_ring", "cursor", "tokens beyond the ring's places are lost", _CutAtTheRing),
    _mutant("records_not_faded", "decay", "the gates of later tokens do not fade a record", _RecordsNotFaded),
    _mutant("records_fade_by_themselves", "decay", "a record fades by its own gate too", _RecordsFadeByThemselves),
    _mutant("state_not_faded", "decay", "the stored state does not fade in a fold", _StateNotFaded),
    _mutant("tracked_at_the_end", "checkpoint", "the track slot gets the last committed state", _TrackedAtTheEnd),
    _mutant("tracked_one_early", "checkpoint", "the track slot gets the state one step before", _TrackedOneEarly),
    _mutant("tracked_without_history", "checkpoint", "only this window's tokens are counted", _TrackedWithoutHistory),
    _mutant("never_tracked", "checkpoint", "the track slot is not written", _NeverTracked),
    _mutant("slot_for_row", "wrong_index", "a fold reads the ring at the request's slot", _SlotForRow),
    _mutant("place_for_row", "wrong_index", "a fold reads the ring at the place in the batch", _PlaceForRow),
    _mutant("first_layer_for_all", "layer", "every layer folds the first layer's records", _FirstLayerForAll),
    _mutant("whole_ring_read", "leftover", "places outside the history are read with weight 0", _WholeRingRead),
    _mutant("idle_row_folded", "sentinel", "an idle row of the batch folds into a slot", _IdleRowFolded),
    _mutant("state_stored_in_verify", "early_store", "verify writes the pool", _StateStoredInVerify),
    _mutant("beta_on_the_value_only", "formula", "beta does not scale what is forgotten", _BetaOnTheValueOnly),
    _mutant("heads_interleaved", "wrong_head", "value heads take key heads in turn", _HeadsInterleaved),
    _mutant("bias_forgotten", "formula", "the gate's bias is left out", _BiasForgotten),
    _mutant("scaled_twice", "formula", "the query is scaled twice", _ScaledTwice),
    _mutant("first_channels_gate", "formula", "all channels fade by the first one's gate", _FirstChannelsGate),
    _mutant("slot_offset_in_32_bits", "wrap", "slot times stride wraps at 2^31 elements", _OffsetWraps),
    Mutant("just_beyond_the_bound", "accuracy", f"a number {BEYOND} times its bound away", _beyond_the_bound),
)
