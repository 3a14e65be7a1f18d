"""A case of recurrence.replay as pools, rings and batches, and what became of them.

Pools are [layers, places, heads, V, K] as these kernels want them, rings [layers, rows, heads, ring, ...]. The upper
half of the slots lies behind the case's gap. Slots and rows of nobody hold what must stay; rings hold what earlier
requests left. A batch is the requests that are still there in a round, each with its window's tokens.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from fuzz.engines.memory import Memory, bits, slot_places
from oracle.recurrence.replay_case import NONE
from oracle.recurrence.replay_walk import prepared
from oracle.recurrence.words import POISON, UNTOUCHED

LEFTOVER = {"zeros": 0.0, "numbers": 1.0, "nan": float("nan")}
SPARE = 8  # elements between the rows of strided tokens


class ReplayState:
    """Buffers of one case. ``own_rows``: the rings have rows of their own, else one for each slot of the pool."""

    def __init__(self, engine: Any, memory: Memory, case: Any, *, own_rows: bool = False):
        self.engine, self.memory, self.case, self.torch = engine, memory, case, engine.torch
        self.places = slot_places(case.slots, case.gap)
        self.row_places = list(range(case.rows)) if own_rows else self.places
        self.own_rows = own_rows
        shape = (case.layers, self.places[-1] + 1, case.value_heads, case.value_size, case.key_size)
        self.pool = memory.zeros(shape, self.dtype(case.state_dtype))
        memory.know("pool of states", self.pool, self.places)
        self.pool[:, self.places] = POISON
        for r in case.requests:
            if r["slot"] != NONE:
                self.pool[:, self.places[r["slot"]]] = self._values(r["state"].swapaxes(-1, -2)).to(self.pool.dtype)
        self._rings: list[tuple[Any, Any]] = []
        self._pool_before = bits(self.torch, self.pool[:, self.places]).clone()
        self.kept = 0
        self.tracks: list[list[np.ndarray]] = [[] for _ in case.requests]
        self.outputs: list[list[np.ndarray]] = [[] for _ in case.requests]

    def dtype(self, name: str) -> Any:
        return getattr(self.torch, name)

    def _values(self, values: np.ndarray) -> Any:
        return self.torch.from_numpy(np.ascontiguousarray(values)).to(self.engine.device)

    def ring(self, name: str, heads: int, entry: tuple[int, ...], dtype: str, leftover: bool = True) -> Any:
        """A ring buffer for all layers."""
        shape = (self.case.layers, self.row_places[-1] + 1, heads, self.case.ring, *entry)
        ring = self.memory.zeros(shape, self.dtype(dtype))
        self.memory.know(f"ring of {name}", ring, self.row_places)
        if leftover:
            ring[:, self.row_places] = LEFTOVER[self.case.leftover]
        self._rings.append((ring, bits(self.torch, ring[:, self.row_places]).clone()))
        return ring

    def cursors(self, dtype: str) -> Any:
        """One integer a row of the rings, 0."""
        made = self.memory.zeros((1, self.row_places[-1] + 1), self.dtype(dtype))
        self.memory.know("cursors", made, self.row_places)
        return made[0]

    def row(self, request: dict[str, Any]) -> int:
        """Where the ring of a request lies; -1 for an idle row."""
        at = request["row"] if self.own_rows else request["slot"]
        return self.row_places[at] if at != NONE else NONE

    def slot(self, number: int) -> int:
        return self.places[number] if number != NONE else NONE

    def batches(self) -> list[Batch]:
        """One a round."""
        return [Batch(self, j) for j in range(max(len(r["length"]) for r in self.case.requests))]

    def read(self, slot: int) -> np.ndarray:
        """[layers, heads, K, V] of a slot now."""
        return self.pool[:, self.places[slot]].float().cpu().numpy().swapaxes(-1, -2).copy()

    def frozen(self, slots: list[int]) -> tuple[list[int], Any]:
        """What the states of ``slots`` are, to be compared later."""
        places = [self.places[s] for s in slots]
        return places, bits(self.torch, self.pool[:, places]).clone()

    def stayed(self, before: tuple[list[int], Any]) -> None:
        """Count cells that changed since ``frozen``."""
        places, was = before
        self.kept += int((bits(self.torch, self.pool[:, places]) != was).sum())

    def save_tracks(self, batch: Batch, own_slot: bool = False) -> None:
        """Read the states that this round saved, from the track slot or from the request's ``own_slot``."""
        for i, r in zip(batch.present, batch.requests, strict=True):
            if NONE not in (r["slot"], r["track_slot"]) and r["track_step"][batch.number] != NONE:
                self.tracks[i].append(self.read(r["slot" if own_slot else "track_slot"]))

    def save_outputs(self, batch: Batch, outputs: list[Any]) -> None:
        """``outputs``: one [tokens, heads, V] a layer."""
        whole = np.stack([o.detach().float().cpu().numpy() for o in outputs])
        for i, first, end in zip(batch.present, batch.starts[:-1], batch.starts[1:], strict=True):
            self.outputs[i].append(whole[:, first:end])

    def observed(self, **more: Any) -> dict[str, Any]:
        """The outcome fields; ``more`` are those only some targets have."""
        case = self.case
        zero = np.zeros((case.layers, case.value_heads, case.key_size, case.value_size), np.float32)
        seen = {
            "outside": self.memory.outside() or UNTOUCHED,
            "kept": self.kept + self._nobodys(),
            "tracks": [np.stack(t) if t else np.zeros((0, *zero.shape), np.float32) for t in self.tracks],
            "state": [self.read(r["slot"]) if r["slot"] != NONE else zero for r in case.requests],
        } | more
        if any(self.outputs):
            seen["output"] = [np.concatenate(o, 1) for o in self.outputs]
        return seen

    def _nobodys(self) -> int:
        """Cells changed in slots and rows that belong to no request."""
        slots = {r["slot"] for r in self.case.requests}
        slots |= {r["track_slot"] for r in self.case.requests if (r["track_step"] != NONE).any() and r["slot"] != NONE}
        idle = [s for s in range(self.case.slots) if s not in slots]
        now = bits(self.torch, self.pool[:, [self.places[s] for s in idle]])
        changed = int((now != self._pool_before[:, idle]).sum())
        used = {r["row"] if self.own_rows else r["slot"] for r in self.case.requests}
        free = [n for n in range(len(self.row_places)) if n not in used]
        for ring, before in self._rings:
            now = bits(self.torch, ring[:, [self.row_places[n] for n in free]])
            changed += int((now != before[:, free]).sum())
        return changed


class Batch:
    """The requests of one round. ``starts``: first token of each and the end."""

    def __init__(self, state: ReplayState, number: int):
        self.state, self.number = state, number
        requests = state.case.requests
        self.present = [i for i, r in enumerate(requests) if number < len(r["length"])]
        self.requests = [requests[i] for i in self.present]
        self.lengths = [int(r["length"][number]) for r in self.requests]
        self.starts = np.cumsum([0, *self.lengths]).tolist()

    def of_rounds(self, name: str, dtype: str) -> Any:
        """``accepted`` or ``track_step`` of every row."""
        return self.state.engine.tensor([int(r[name][self.number]) for r in self.requests], dtype)

    def slots(self, dtype: str = "int32", contiguous: bool = True, name: str = "slot") -> Any:
        values = [self.state.slot(r[name]) for r in self.requests]
        return self.state.engine.tensor(values, dtype, contiguous=contiguous)

    def rows(self, dtype: str = "int64") -> Any:
        return self.state.engine.tensor([self.state.row(r) for r in self.requests], dtype)

    def offsets(self) -> Any:
        return self.state.engine.tensor(self.starts, "int32", contiguous=True)

    def present_slots(self) -> list[int]:
        return [r["slot"] for r in self.requests if r["slot"] != NONE]

    def tokens(self, name: str, layer: int) -> Any:
        """A tensor of the window, [tokens, ...]: rows contiguous, apart from each other when strided."""
        state = self.state
        parts = []
        for r, length in zip(self.requests, self.lengths, strict=True):
            first = int(r["length"][: self.number].sum())
            parts.append(r[name][layer, first : first + length])
        values = state._values(np.concatenate(parts)).to(state.dtype(state.case.input_dtype))
        if not state.engine.strided:
            return values
        flat = values.flatten(1)
        wide = state.torch.full((len(flat), flat.shape[1] + SPARE), POISON, dtype=flat.dtype, device=flat.device)
        wide[:, : flat.shape[1]] = flat
        return wide[:, : flat.shape[1]].unflatten(1, values.shape[1:])

    def raw(self) -> list[tuple[dict[str, Any], Any]]:
        """Per request its tensors, and the gates and betas of this round's tokens in float32, as a verify pass
        leaves them: [layers, heads, tokens, ...]."""
        case, made = self.state.case, []
        shared = {"A_log": case.A_log, "dt_bias": case.dt_bias}
        for r, length in zip(self.requests, self.lengths, strict=True):
            first = int(r["length"][: self.number].sum())
            x = {n: r[n][:, first : first + length] for n in ("q", "k", "v", "a", "b")}
            each = prepared(case, x, shared)
            g = each.g if case.gate == "channel" else each.g[..., 0]
            left = SimpleNamespace(g=g.swapaxes(1, 2), beta=each.beta.swapaxes(1, 2))
            made.append((r | {n: x[n].swapaxes(1, 2) for n in ("k", "v")}, left))
        return made


def weight(state: ReplayState, name: str, layer: int) -> Any:
    """``A_log`` or ``dt_bias`` of a layer, float32."""
    return state._values(getattr(state.case, name)[layer]).float()
