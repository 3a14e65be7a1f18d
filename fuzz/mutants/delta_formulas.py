"""Wrong formulas of the delta rule: the reference's own, each with one method changed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from oracle.recurrence.approximate import Approximate, concatenate, dot, exact
from oracle.recurrence.delta_case import NONE
from oracle.recurrence.delta_outcome import is_null
from oracle.recurrence.delta_walk import Rules, constant


class NoDecay(Rules):
    def advance(self, h, k, v, decay, beta):
        return super().advance(h, k, v, exact(1.0), beta)


class FadesLast(Rules):
    def advance(self, h, k, v, decay, beta):
        return super().advance(h, k, v, exact(1.0), beta) * decay[..., None]


class CorrectsUnfaded(Rules):
    def advance(self, h, k, v, decay, beta):
        written = (v - dot(h, k[..., None], axis=-2)) * beta
        return h * decay[..., None] + k[..., None] * written[..., None, :]


class NoCorrection(Rules):
    def advance(self, h, k, v, decay, beta):
        return h * decay[..., None] + k[..., None] * (v * beta)[..., None, :]


class NoBeta(Rules):
    def advance(self, h, k, v, decay, beta):
        return super().advance(h, k, v, decay, exact(1.0))


class BetaOnValue(Rules):
    def advance(self, h, k, v, decay, beta):
        return super().advance(h, k, v * beta, decay, exact(1.0))


class ReadsBefore(Rules):
    def __init__(self):
        self.before: list[Approximate] = []

    def advance(self, h, k, v, decay, beta):
        self.before.append(h)
        return super().advance(h, k, v, decay, beta)

    def output(self, states, q):
        before = Approximate(*(np.stack([getattr(b, n) for b in self.before], 1) for n in ("value", "error")))
        return super().output(before, q)


class ScaleTwice(Rules):
    def queries(self, case, q):
        return super().queries(case, q) * constant(case.used_scale)


class OwnScaleIgnored(Rules):
    def queries(self, case, q):
        return super().queries(replace(case, scale=None), q)


class KeysNotNormalised(Rules):
    def keys(self, case, k):
        return self.heads(case, k)


class EpsilonTooSmall(Rules):
    def normalised(self, case, keys):
        return keys * (1.0 / (dot(keys, keys) + constant(1e-12)).sqrt())[..., None]


class EpsilonOutside(Rules):
    def normalised(self, case, keys):
        return keys * (1.0 / (dot(keys, keys).sqrt() + constant(1e-6)))[..., None]


class HeadsInTurn(Rules):
    def heads(self, case, keys):
        return concatenate([keys] * (case.value_heads // case.key_heads), 2)


class LastKeyChannel(Rules):
    def keys(self, case, k):
        k = super().keys(case, k)
        cut = np.ones(case.key_dim)
        cut[case.key_dim - 1 :] = 0.0
        return Approximate(k.value * cut, k.error * cut)


class NoBias(Rules):
    def decay(self, case, a, A_log, dt_bias):
        return super().decay(case, a, A_log, dt_bias * 0.0)


class RateNotExponentiated(Rules):
    def decay(self, case, a, A_log, dt_bias):
        rate = exact(A_log).reshape(-1, *[1] * case.per_channel)
        return -(rate * (a + dt_bias).softplus())


class EarlyThreshold(Rules):
    def decay(self, case, a, A_log, dt_bias):
        rate = exact(A_log).exp().reshape(-1, *[1] * case.per_channel)
        return -(rate * (a + dt_bias).softplus(threshold=2.0))


class BetaNotSquashed(Rules):
    def beta(self, case, b):
        return b


class StartsWithTheFirst(Rules):
    def start_slot(self, case, request):
        return super().start_slot(case, case.requests[0])


class NeverFresh(Rules):
    def start_slot(self, case, request):
        return request.slot if case.fresh else super().start_slot(case, request)


class AcceptedIgnored(Rules):
    def start_slot(self, case, request):
        return request.table[0] if request.table else super().start_slot(case, request)


class AcceptedTooFar(Rules):
    def start_slot(self, case, request):
        if not request.accepted:
            return super().start_slot(case, request)
        return request.table[min(request.accepted, len(request.table) - 1)]


class AcceptedUnbounded(Rules):
    """Index -1 of a row of one flat table of equal rows."""

    def start_slot(self, case, request):
        if request.accepted or not request.table or is_null(request):
            return super().start_slot(case, request)
        at = case.requests.index(request)
        return case.requests[at - 1].table[-1] if at else NONE


class TreeAsChain(Rules):
    def parents(self, case, request):
        return tuple(range(-1, request.length - 1))


class TreeFromTheRoot(Rules):
    def parents(self, case, request):
        return tuple(min(p, 0) for p in super().parents(case, request))


class SplitFromTheStart(Rules):
    def __init__(self):
        self.first: Approximate | None = None

    def advance(self, h, k, v, decay, beta):
        self.first = self.first or h
        return super().advance(h, k, v, decay, beta)

    def kept(self, case, step, state):
        return self.first if step + 1 == case.split else super().kept(case, step, state)
