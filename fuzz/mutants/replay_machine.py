"""A ring of records with its cursors, in plain float64, to be made wrong in one place.

It does what an engine does: a pool of states by slot, rings by row, a write position and a base per row. Each method
is one decision, and a mutant overrides one of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oracle.recurrence.replay import UNTOUCHED
from oracle.recurrence.replay_bound import folds
from oracle.recurrence.replay_case import NONE, ReplayCase, Request, entry_shape, inputs, spans, tracked, weights
from oracle.recurrence.replay_walk import Tokens, prepared, read
from oracle.recurrence.words import POISON

LEFTOVER = {"zeros": 0.0, "numbers": 1.0, "nan": np.nan}


class Machine:
    """One run over a case; ``observation`` is what an adapter would have seen."""

    def __init__(self, case: ReplayCase):
        self.case, self.kept, self.outside = case, 0, UNTOUCHED
        shared = weights(case)
        self.inputs = [inputs(case, r) for r in case.requests]
        self.tokens = [self.prepare(x, shared) for x in self.inputs]
        heads, k_size, v_size = entry_shape(case)
        gates = k_size if case.gate == "channel" else 1
        # A window that the ring cannot hold must not be cut: then there have to be more places.
        self.ring = max(case.ring, case.window)
        shapes = {"d": (v_size,), "k": (k_size,), "g": (gates,)}
        self.rings = {
            name: np.full((case.layers, case.rows, heads, self.ring, *shape), LEFTOVER[case.leftover])
            for name, shape in shapes.items()
        }
        self.write, self.base = [0] * case.rows, [0] * case.rows
        self.states = {r.slot: x["state"] for r, x in zip(case.requests, self.inputs, strict=True)}
        self.idle = np.full(self.inputs[0]["state"].shape, POISON)
        self.output: list[list[np.ndarray]] = [[] for _ in case.requests]
        self.tracks: list[list[np.ndarray]] = [[] for _ in case.requests]
        self.history: list[list[int]] = [[] for _ in case.requests]

    def observation(self) -> dict[str, Any]:
        for j in range(max(len(r.rounds) for r in self.case.requests)):
            present = [i for i, r in enumerate(self.case.requests) if j < len(r.rounds)]
            for i in present:
                self.one_verify(i, j)
            for i in present:
                self.one_commit(i, j)
        state = [self.last(i) for i in range(len(self.case.requests))]
        tracks = [np.stack(t) if t else np.zeros((0, *self.idle.shape)) for t in self.tracks]
        return {
            "outside": self.outside, "kept": self.kept, "history": self.history,
            "output": [np.stack(o, 1) for o in self.output], "tracks": tracks, "state": state,
        }  # fmt: skip

    def one_verify(self, i: int, j: int) -> None:
        """Outputs and records of a window; the stored state stays."""
        r, each = self.case.requests[i], self.tokens[i]
        state = self.inputs[i]["state"] if r.slot == NONE else self.current(i)
        for t, token in enumerate(range(*spans(r)[j])):
            k, g = each.k[:, token], each.g[:, token]
            state = state * np.exp(g)[..., None]
            change = self.change(each, token, read(state, k))
            state = state + k[..., None] * change[..., None, :]
            self.output[i].append(read(state, each.q[:, token]))
            if r.row == NONE:
                continue
            place = self.written(r.row, t)
            if place is not None:
                for name, x in zip("dkg", (change, k, g), strict=True):
                    self.rings[name][:, r.row, :, place] = x

    def one_commit(self, i: int, j: int) -> None:
        r = self.case.requests[i]
        if r.slot == NONE:
            self.idle_row(i)
            self.history[i].append(0)
            return
        before = self.write[r.row]
        self.write[r.row] += self.committed(r, j)
        saves = j in tracked(r)
        if saves:
            self.tracks[i].append(self.saved(i, j, before))
        if self.case.operation == "every" or self.full(r.row, saves):
            self.states[r.slot] = self.fold(i, self.write[r.row])
            self.folded(r.row)
        self.history[i].append(self.write[r.row])

    def prepare(self, x: dict[str, np.ndarray], shared: dict[str, np.ndarray]) -> Tokens:
        return prepared(self.case, x, shared)

    def change(self, each: Tokens, token: int, seen: np.ndarray) -> np.ndarray:
        return each.beta[:, token, :, None] * (each.v[:, token] - seen)

    def current(self, i: int) -> np.ndarray:
        return self.fold(i, self.write[self.case.requests[i].row])

    def last(self, i: int) -> np.ndarray:
        if self.case.requests[i].slot == NONE:
            return self.inputs[i]["state"]
        return self.current(i)

    def written(self, row: int, t: int) -> int | None:
        """Where in its ring the record of step ``t`` goes; ``None``: nowhere."""
        return (self.base[row] + self.write[row] + t) % self.ring

    def places(self, row: int, count: int) -> list[int]:
        """Where the history is read, oldest first."""
        return [(self.base[row] + n) % self.ring for n in range(count)]

    def row(self, i: int) -> int:
        """Whose ring a fold reads."""
        return self.case.requests[i].row

    def committed(self, r: Request, j: int) -> int:
        return r.rounds[j].accepted

    def full(self, row: int, saves: bool) -> bool:
        return folds(self.case, self.write[row], saves)

    def folded(self, row: int) -> None:
        """The cursors after a fold."""
        circular = self.case.operation == "circular"
        self.base[row] = (self.base[row] + self.write[row]) % self.ring if circular else 0
        self.write[row] = 0

    def saved(self, i: int, j: int, before: int) -> np.ndarray:
        return self.fold(i, before + self.case.requests[i].rounds[j].track_step + 1)

    def idle_row(self, i: int) -> None:
        """An idle row is passed over."""

    def records(self, i: int, count: int) -> dict[str, np.ndarray]:
        at = self.places(self.case.requests[i].row, count)
        return {name: ring[:, self.row(i)][:, :, at] for name, ring in self.rings.items()}

    def decays(self, g: np.ndarray) -> np.ndarray:
        """How far each record has faded."""
        return np.exp(g.sum(2, keepdims=True) - g.cumsum(2))

    def fold(self, i: int, count: int) -> np.ndarray:
        """The stored state with ``count`` records."""
        state = self.states[self.case.requests[i].slot]
        if count <= 0:
            return state
        x = self.records(i, count)
        return self.faded(state, x["g"]) + np.einsum("lhjk,lhjv->lhkv", x["k"] * self.decays(x["g"]), x["d"])

    def faded(self, state: np.ndarray, g: np.ndarray) -> np.ndarray:
        return state * np.exp(g.sum(2))[..., None]
