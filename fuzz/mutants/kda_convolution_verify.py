"""Mutants of recurrence.kda_convolution_verify: the plain evaluation with one wrong decision."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.mutants.beyond import BEYOND, beyond
from fuzz.mutants.mutant import Mutant
from oracle.recurrence import replay_walk
from oracle.recurrence.kda_convolution_case import NONE, KdaConvolutionCase, inputs, taps, weights
from oracle.recurrence.kda_convolution_verify import TILE
from oracle.recurrence.kda_convolution_walk import evaluated
from oracle.recurrence.words import UNTOUCHED


class _Right:
    """The operation in float64, one method a decision."""

    def __init__(self, case: KdaConvolutionCase):
        self.case, self.w = case, weights(case)

    def observation(self) -> dict[str, Any]:
        seen: dict[str, Any] = {"outside": UNTOUCHED, "kept": self.kept()}
        seen |= {name: [] for name in ("output", "windows", "states", "records")}
        for r in self.case.requests:
            for name, numbers in self.request(inputs(self.case, r)).items():
                seen[name].append(numbers)
        return seen

    def request(self, x: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        case, steps, heads = self.case, self.case.steps, self.case.value_heads
        raw_q, raw_k, raw_v = self.split(self.activated(self.convolved(x)))
        q, k = (self.unit(z) if case.normalise else z for z in (raw_q, raw_k))
        q, k = (z.repeat(heads // case.key_heads, 1) for z in (q * self.scale(), k))
        g, beta = self.gates(x), self.beta(x)
        state, states, output = x["state"], [], []
        for t in range(steps):
            before = state
            state = replay_walk.advance(state[None], k[None, t], raw_v[None, t], g[None, t], beta[None, t])[0]
            states.append(state)
            output.append(replay_walk.read(self.seen(before, state), q[t]))
        record = np.concatenate([z.reshape(steps, -1) for z in (self.recorded(raw_k), raw_v, g, beta)], 1)
        return {
            "output": np.stack(output), "windows": self.windows(x),
            "states": np.stack(states)[: 0 if case.ring else steps], "records": record[: min(case.ring, steps)],
        }  # fmt: skip

    def kept(self) -> int:
        return 0

    def convolved(self, x: dict[str, np.ndarray]) -> np.ndarray:
        return (taps(x["x"], x["line"]) * self.w["weight"]).sum(-1) + self.w["bias"]

    def activated(self, y: np.ndarray) -> np.ndarray:
        return y / (1 + np.exp(-y))

    def split(self, y: np.ndarray) -> list[np.ndarray]:
        """Queries, keys and values, [steps, heads, channels]."""
        keys, heads = self.case.keys, (self.case.key_heads, self.case.key_heads, self.case.value_heads)
        parts = np.split(y, [keys, 2 * keys], 1)
        return [part.reshape(len(y), n, -1) for part, n in zip(parts, heads, strict=True)]

    def unit(self, z: np.ndarray) -> np.ndarray:
        return replay_walk.unit(z)

    def scale(self) -> float:
        return self.case.used_scale

    def gates(self, x: dict[str, np.ndarray]) -> np.ndarray:
        y, rate = x["a"] + self.w["dt_bias"], np.exp(self.w["A_log"])[:, None]
        if self.case.gate == "bounded":
            return self.case.lower_bound / (1 + np.exp(-rate * y))
        return -rate * np.log1p(np.exp(y))

    def beta(self, x: dict[str, np.ndarray]) -> np.ndarray:
        return 1 / (1 + np.exp(-x["b"]))

    def seen(self, before: np.ndarray, state: np.ndarray) -> np.ndarray:
        return state

    def recorded(self, raw_k: np.ndarray) -> np.ndarray:
        return raw_k

    def windows(self, x: dict[str, np.ndarray]) -> np.ndarray:
        return taps(x["x"], x["line"])[:, :, 1:]


class _HistoryOverwritten(_Right):
    """The first tile stores the new history of queries and keys; the later ones start from it."""

    def request(self, x):
        right = super().request(x)
        rolled = x | {"line": x["line"].copy()}
        rolled["line"][: 2 * self.case.keys] = x["x"][-3:].T[: 2 * self.case.keys]
        wrong = super().request(rolled)
        for name in ("output", "states"):
            right[name][..., TILE:] = wrong[name][..., TILE:]
        return right


class _BiasForgotten(_Right):
    def convolved(self, x):
        return super().convolved(x) - self.w["bias"]


class _BiasBehindActivation(_Right):
    def activated(self, y):
        return super().activated(y - self.w["bias"]) + self.w["bias"]


class _NotActivated(_Right):
    def activated(self, y):
        return y


class _WeightsReversed(_Right):
    def convolved(self, x):
        return (taps(x["x"], x["line"])[:, :, ::-1] * self.w["weight"]).sum(-1) + self.w["bias"]


class _WindowNotSlid(_Right):
    """Every step is convolved with what the slot kept."""

    def convolved(self, x):
        fixed = np.concatenate([np.broadcast_to(x["line"], (self.case.steps, *x["line"].shape)), x["x"][..., None]], 2)
        return (fixed * self.w["weight"]).sum(-1) + self.w["bias"]


class _KeysForQueries(_Right):
    def split(self, y):
        q, k, v = super().split(y)
        return [k, q, v]


class _NotNormalised(_Right):
    def unit(self, z):
        return z


class _ScaledTwice(_Right):
    def scale(self):
        return self.case.used_scale**2


class _BoundIgnored(_Right):
    def gates(self, x):
        return -np.exp(self.w["A_log"])[:, None] * np.log1p(np.exp(x["a"] + self.w["dt_bias"]))


class _BetaForgotten(_Right):
    def beta(self, x):
        return np.ones_like(x["b"])


class _ReadBeforeTheUpdate(_Right):
    def seen(self, before, state):
        return before


class _NormalisedKeyRecorded(_Right):
    def recorded(self, raw_k):
        return replay_walk.unit(raw_k) if self.case.normalise else raw_k


class _WindowOneStepBefore(_Right):
    def windows(self, x):
        return taps(x["x"], x["line"])[:, :, :-1]


class _RingOverrun(_Right):
    def kept(self):
        return (self.case.steps - self.case.ring) * self.case.channels if 0 < self.case.ring < self.case.steps else 0


class _StatePersisted(_Right):
    def kept(self):
        return self.case.value_heads * self.case.key_size if any(r.slot != NONE for r in self.case.requests) else 0


class _IdleRowStored(_Right):
    def kept(self):
        return self.case.channels * sum(r.slot == NONE for r in self.case.requests)


def _beyond_the_bound(case: KdaConvolutionCase) -> dict[str, Any] | None:
    """All as it should be, but one output is just outside."""
    seen, right = _Right(case).observation(), evaluated(case)
    outputs = [right[i]["output"].legal() if r.slot != NONE else None for i, r in enumerate(case.requests)]
    return seen | {"output": beyond(outputs, seen["output"])}


def _mutant(name: str, fault: str, meaning: str, wrong: type[_Right]) -> Mutant:
    return Mutant(name, fault, meaning, lambda case: wrong(case).observation())


MUTANTS = (
    _mutant("history_overwritten", "race", "later tiles read the history the first stored", _HistoryOverwritten),
    _mutant("window_not_slid", "window", "every step is convolved with what the slot kept", _WindowNotSlid),
    _mutant("window_one_step_before", "off_by_one", "the window of a step lacks its own input", _WindowOneStepBefore),
    _mutant("weights_reversed", "wrong_order", "the first weight meets the token itself", _WeightsReversed),
    _mutant("bias_forgotten", "formula", "the convolution's bias is left out", _BiasForgotten),
    _mutant("bias_behind_activation", "wrong_order", "the bias comes after the activation", _BiasBehindActivation),
    _mutant("not_activated", "formula", "the convolution's result is taken as it is", _NotActivated),
    _mutant("keys_for_queries", "wrong_head", "queries and keys change places", _KeysForQueries),
    _mutant("not_normalised", "formula", "queries and keys are not normalised", _NotNormalised),
    _mutant("scaled_twice", "formula", "the query is scaled twice", _ScaledTwice),
    _mutant("bound_ignored", "formula", "a bounded gate is computed as an unbounded one", _BoundIgnored),
    _mutant("beta_forgotten", "formula", "every token is written whole", _BetaForgotten),
    _mutant("read_before_the_update", "off_by_one", "an output does not see its own token", _ReadBeforeTheUpdate),
    _mutant("normalised_key_recorded", "record", "the ring gets the normalised key", _NormalisedKeyRecorded),
    _mutant("ring_overrun", "neighbour", "steps behind the ring's end go to the next row", _RingOverrun),
    _mutant("state_persisted", "early_store", "verify writes the pool", _StatePersisted),
    _mutant("idle_row_stored", "sentinel", "an idle row is stored somewhere", _IdleRowStored),
    Mutant("just_beyond_the_bound", "accuracy", f"an output {BEYOND} times its bound away", _beyond_the_bound),
)
