"""The blocks of a case of commit.aligned_states as vLLM keeps them, and what they hold afterwards.

A layer has a tensor of convolution entries and one of recurrent states, each a block a row, with padding
behind the entry as where several kinds of cache share a page. The configuration objects are the engine's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any
from unittest import mock

import numpy as np

from fuzz.engines.closed import ClosedStub
from fuzz.engines.memory import Memory, bits, slot_places
from oracle.commit import aligned_numbers as numbers
from oracle.commit.aligned_case import NONE, NULL_BLOCK
from oracle.commit.aligned_states import UNTOUCHED, entry

ALIGNMENT_BYTES = 8  # of a block, which some releases ask for
PADDING = 8  # elements behind an entry
SPARE_COLUMNS = 2  # of the tables, behind the longest request


class Blocks:
    """Pools and tables of one call."""

    def __init__(self, engine: Any, memory: Memory, case: Any):
        self.engine, self.memory, self.case = engine, memory, case
        places = np.array(slot_places(case.blocks, case.gap))
        self.groups = [[n] for n in range(case.layers)] if case.grouped else [list(range(case.layers))]
        # Every second group counts its blocks from the other end, so that one table cannot serve for two.
        turned = np.concatenate([places[:1], places[:0:-1]])
        self.places = [places, turned]  # of the case's blocks, by parity of the group
        self.rows = int(places[-1]) + 1
        self.held = [sorted(np.flatnonzero(row != NULL_BLOCK).tolist()) for row in case.table]
        used = sorted(places[1:].tolist())
        self._tables: list[Any] = []  # the engine keeps addresses alone
        state, window = numbers.pattern(case, case.blocks)
        if not case.window_first:
            window = window.swapaxes(2, 3)
        entries = {"state": (case.state_dtype, tuple(case.state_entry), state)}
        entries["window"] = (case.window_dtype, window.shape[2:], window)
        self.pools = {
            name: self._pool(name, dtype, shape, cells, used)
            for name, (dtype, shape, cells) in entries.items()
            if prod(shape)
        }

    def _pool(self, name: str, dtype_name: str, shape: tuple[int, ...], cells: np.ndarray, used: list[int]) -> Any:
        """[layers, blocks, *shape], padded behind each entry."""
        dtype = getattr(self.engine.torch, dtype_name)
        step = ALIGNMENT_BYTES // dtype.itemsize
        page = -(-prod(shape) // step) * step + (0 if self.case.gap else PADDING)
        wide = self.memory.zeros((self.case.layers, self.rows, page), dtype)
        pool = wide[:, :, : prod(shape)].unflatten(2, shape)
        self.memory.know(f"{name} pool", pool, used)
        flat = cells[:, 1:].reshape(len(cells), -1, *shape)
        raw = self.engine.torch.from_numpy(flat.astype(f"u{dtype.itemsize}").view(f"i{dtype.itemsize}"))
        for layer, places in self._places():
            bits(self.engine.torch, pool)[layer, places[1:].tolist()] = raw[layer].to(self.engine.device)
        return pool

    def _places(self) -> Iterator[tuple[int, np.ndarray]]:
        """Where each layer keeps the blocks of the case."""
        for number, layers in enumerate(self.groups):
            for layer in layers:
                yield layer, self.places[number % 2]

    def block_ids(self, row: int, group: int) -> list[int]:
        """The table of a request, in which a block given back is the null block."""
        return self.places[group % 2][self.case.table[row]].tolist() + [NULL_BLOCK] * SPARE_COLUMNS

    def tables(self, rows: list[int], count: int) -> list[Any]:
        """For each group an int32 table of ``count`` rows in which request i stands in row ``rows[i]``; the others
        are empty."""
        for group in range(len(self.groups)):
            made = np.zeros((count, self.case.table.shape[1] + SPARE_COLUMNS), np.int64)
            for i, row in enumerate(rows):
                made[row] = self.block_ids(i, group)
            self._tables.append(self.engine.tensor(made, "int32", contiguous=True))
        return self._tables[-len(self.groups) :]

    def columns_of(self, row: int, group: int, blocks: list[int]) -> list[int]:
        """In which columns of a request's table these blocks stand; ``NONE`` for one that is in none."""
        table = self.block_ids(row, group)
        return [table.index(b) if b != NULL_BLOCK and b in table else NONE for b in blocks]

    def layers(self) -> dict[str, Any]:
        """Layer by name, with its tensors in the engine's order."""
        return {
            f"layer.{n}": ClosedStub(
                "attention", kv_cache=[self.pools[p][n] for p in ("window", "state") if p in self.pools]
            )
            for n in range(self.case.layers)
        }

    def copy_functions(self) -> tuple[Any, ...]:
        found = {"window": "aligned.copy_window", "state": "aligned.copy_state"}
        return tuple(self.engine.symbol(found[p]) for p in ("window", "state") if p in self.pools)

    def configuration(self) -> Any:
        """The engine's description of the groups of recurrent layers."""
        pools = [self.pools[p] for p in ("window", "state") if p in self.pools]
        spec = self.engine.symbol("aligned.spec")(
            block_size=self.case.block,
            shapes=tuple(tuple(p.shape[2:]) for p in pools),
            dtypes=tuple(p.dtype for p in pools),
            mamba_cache_mode="align",
            num_speculative_blocks=self.case.drafts,
        )
        names = list(self.layers())
        groups = [
            self.engine.symbol("aligned.group")(layer_names=[names[n] for n in layers], kv_cache_spec=spec)
            for layers in self.groups
        ]
        return self.engine.symbol("aligned.configuration")(
            num_blocks=self.rows, kv_cache_tensors=[], kv_cache_groups=groups
        )

    @contextmanager
    def layout(self) -> Iterator[None]:
        """The convolution layout that an environment variable chooses, as the case has it."""
        if not self.engine.fact("aligned.channels_first"):
            yield  # there is no choice yet
            return
        with mock.patch.object(
            self.engine.symbol("aligned.module"), "is_conv_state_dim_first", lambda: not self.case.window_first
        ):
            yield

    def observe(self, accepted: list[int], column: list[int], beside: str = "") -> dict[str, Any]:
        """What both readers find. ``beside``: what else changed that should not have, in words."""
        after = {name: self._read(name, pool) for name, pool in self.pools.items()}
        rows = [self._request(i, n, c, after) for i, (n, c) in enumerate(zip(accepted, column, strict=True))]
        fields = ("changed", "checkpoint", "continuing")
        outside = "; ".join(filter(None, (self.memory.outside(), beside)))
        return {"outside": outside or UNTOUCHED, "accepted": accepted, "column": column} | {
            f: [row[f] for row in rows] for f in fields
        }

    def _read(self, name: str, pool: Any) -> np.ndarray:
        """Patterns as `numbers.pattern` lays them out."""
        cells = bits(self.engine.torch, pool)
        held = np.stack([cells[layer, p.tolist()].cpu().numpy() for layer, p in self._places()])
        found = held.view(f"u{held.dtype.itemsize}").astype(np.int64)
        if name == "state":
            return found.reshape(*found.shape[:2], -1)
        return found if self.case.window_first else found.swapaxes(2, 3)

    def _request(self, i: int, accepted: int, column: int, after: dict[str, np.ndarray]) -> dict[str, Any]:
        case, row, held = self.case, self.case.table[i], self.held[i]
        blocks = row[held].tolist()
        before = dict(zip(("state", "window"), numbers.pattern(case, case.blocks), strict=True))
        changed = [c for c in held if any((a[:, row[c]] != before[n][:, row[c]]).any() for n, a in after.items())]
        verified = case.operation == "after_verify"
        post = int(case.computed[i] + case.fed[i] + case.committed[i]) - 1
        looked = post // case.block - 1 if verified else NONE
        checkpoint = self._entry(after, blocks, row[looked], row[looked], 0) if looked in held else []
        continuing = []
        if verified or case.column[i] != NONE:
            state, here = (row[c] if c in held else NULL_BLOCK for c in (column + accepted - 1, column))
            continuing = self._entry(after, blocks, state, here, accepted - 1)
        return {"changed": changed, "checkpoint": checkpoint, "continuing": continuing}

    def _entry(self, after: dict[str, np.ndarray], blocks: list[int], state: int, window: int, first: int) -> list[int]:
        """State cells of all layers, then the window that starts at input ``first``."""
        parts = []
        for name, cells in after.items():
            found = cells[:, state] if name == "state" else cells[:, window, first : first + self.case.window]
            parts.append(np.array(numbers.read(self.case, self.case.blocks, blocks, found, window=name == "window")))
        states, windows = (p for p in parts) if len(parts) == 2 else (*parts, np.zeros(0))
        return entry(states, windows)
