"""Tree masks as bytes: how many cells each layout has, and what its cells say."""

from __future__ import annotations

from typing import Any

import numpy as np

MODES = {"full": 0, "query": 1, "bits": 2}  # numbers of the engine's TreeMaskMode


def word_bytes(nodes: int) -> int:
    """Bytes of a packed row of the mask."""
    return 4 if nodes > 16 else 2 if nodes > 8 else 1


def mask_cells(case: Any) -> int:
    """Cells of the whole mask of a batch."""
    rows, nodes = case.parents.shape
    return int((nodes * (case.pre + nodes)).sum()) if case.mask == "full" else rows * nodes * nodes


def read_mask(case: Any, mask: Any) -> dict[str, Any]:
    """``sees`` and ``hidden_prefix`` of a flat mask tensor (on the CPU) in the case's layout."""
    rows, nodes = case.parents.shape
    if case.mask == "bits":
        words = np.ascontiguousarray(mask.numpy()).view(np.uint8).reshape(rows, nodes, -1)
        return {
            "sees": [[int.from_bytes(w.tobytes(), "little") for w in row] for row in words],
            "hidden_prefix": [0] * rows,
        }
    return read_cells(case, np.ascontiguousarray(mask.numpy()).view(np.uint8) != 0, case.mask == "full")


def read_cells(case: Any, cells: np.ndarray, covers_prefix: bool) -> dict[str, Any]:
    """The same from a flat array of truth values."""
    nodes, at = case.parents.shape[1], 0
    sees, hidden = [], []
    for pre in case.pre.tolist() if covers_prefix else [0] * len(case.pre):
        block = cells[at : at + nodes * (pre + nodes)].reshape(nodes, pre + nodes)
        at += block.size
        hidden.append(int((~block[:, :pre]).sum()))
        sees.append([sum(1 << int(j) for j in np.flatnonzero(row[pre:])) for row in block])
    return {"sees": sees, "hidden_prefix": hidden}


def full_cells(case: Any) -> np.ndarray:
    """The right mask over prefix and nodes, flat, requests one after another."""
    blocks = [
        np.concatenate([np.ones((sees.shape[0], pre), dtype=bool), sees], axis=1).reshape(-1)
        for pre, sees in zip(case.pre.tolist(), case.sees, strict=True)
    ]
    return np.concatenate(blocks)
