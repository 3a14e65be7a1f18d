"""Output buffers between guard zones, and inputs that must stay as they are.

A kernel that writes behind its row usually hits memory that nobody looks at. Here
every buffer lies inside a wider one filled with a byte that no legal value repeats,
and inputs are compared with a copy, so that such a write is counted. Writes further
away than a guard zone stay unseen.
"""

from __future__ import annotations

from typing import Any

import numpy as np

GUARD_BYTE = 0xA5
LEAST_GUARD = 4096  # bytes before and after each buffer, more for larger buffers


class Outputs:
    """The buffers of one call."""

    def __init__(self, engine: Any):
        self._engine = engine
        self._zones: list[Any] = []
        self._inputs: list[tuple[Any, Any]] = []

    def buffer(self, shape: tuple[int, ...], dtype: str, fill: int) -> Any:
        """A contiguous tensor of ``fill`` that a target may write to."""
        before, inside, behind = self._wide(shape, dtype, GUARD_BYTE)
        self._zones += [before, behind]
        return inside.fill_(fill)

    def input(self, values: Any, dtype: str) -> Any:
        """A contiguous tensor of ``values`` that a target may only read. Zeros lie around
        it, so that a read outside finds the same every time."""
        values = np.asarray(values)
        _, inside, _ = self._wide(values.shape, dtype, 0)
        inside.copy_(self._engine.torch.from_numpy(np.array(values)))
        self._inputs.append((inside, inside.clone()))
        return inside

    def _wide(self, shape: tuple[int, ...], dtype: str, guard_byte: int) -> tuple[Any, Any, Any]:
        """A tensor and the bytes before and behind it, in one storage."""
        torch, kind = self._engine.torch, getattr(self._engine.torch, dtype)
        size = int(np.prod(shape)) * kind.itemsize
        guard = max(LEAST_GUARD, size + -size % 16)
        wide = torch.full((size + 2 * guard,), guard_byte, dtype=torch.uint8, device=self._engine.device)
        return wide[:guard], wide[guard : guard + size].view(kind).view(shape), wide[guard + size :]

    def changed(self) -> int:
        """Bytes of guard zones and cells of inputs that are not what they were."""
        zones = sum(int((zone != GUARD_BYTE).sum()) for zone in self._zones)
        return zones + sum(int((now != before).sum()) for now, before in self._inputs)


def by_row(numbers: Any, nodes: int) -> list[list[int]]:
    """Node numbers of [B, k] entries r * N + n, without their r * N; -1 stays."""
    rows = np.asarray(numbers)
    offset = nodes * np.arange(len(rows))[:, None]
    return np.where(rows == -1, -1, rows - offset).tolist()


def needs_cuda(engine: Any, what: str) -> None:
    """Raise Unsupported on a CPU: ``what`` has no form that runs there."""
    from fuzz.adapter import Unsupported

    if engine.device == "cpu":
        raise Unsupported(f"{what} runs on CUDA devices only")
