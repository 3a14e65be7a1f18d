"""A presentation at the level of memory: how arrays become tensors.

The same values may lie contiguous, strided, or at an offset inside a larger
storage. A kernel that ignores a stride reads the filler, which is chosen to be
wrong and visible, or writes over it, which is looked at after the call.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.engines.memory import bits

FILLER = -977  # no length, slot, token or step of any case


class Layout:
    """Builds tensors for one call. ``strided`` interleaves filler along the last
    axis, so that the result has stride 2 there and a storage offset of 1. ``wide`` collects
    those storages, each with its filler."""

    def __init__(
        self, torch: Any, device: str = "cpu", strided: bool = False, wide: list[tuple[Any, int]] | None = None
    ):
        self.torch, self.device, self.strided = torch, device, strided
        self.wide = [] if wide is None else wide

    def tensor(self, values: Any, dtype: str, *, contiguous: bool = False) -> Any:
        """``values`` as a tensor of ``dtype`` (a torch dtype name).

        ``contiguous`` is for arguments that the engine itself always allocates
        contiguous: a strided one would be an input production cannot reach.
        """
        torch = self.torch
        kind = getattr(torch, dtype)
        plain = torch.from_numpy(np.array(values)).to(kind)
        if contiguous or not self.strided or plain.dim() == 0 or plain.numel() == 0:
            return plain.contiguous().to(self.device)
        filler = 0 if kind in (torch.bool, torch.uint8) else FILLER
        wide = torch.full((*plain.shape[:-1], 2 * plain.shape[-1] + 1), filler, dtype=kind, device=self.device)
        view = wide[..., 1::2]
        view.copy_(plain)
        self.wide.append((wide, filler))
        return view


def overwritten(torch: Any, wide: list[tuple[Any, int]]) -> str:
    """Which strided tensors had their filler written over, in words; empty when none had."""
    changed = []
    for tensor, filler in wide:  # bit for bit, and rounded to the type as it was when it was written
        whole = torch.full((1,), filler, dtype=tensor.dtype, device=tensor.device)
        changed.append((bits(torch, tensor)[..., ::2] != bits(torch, whole)).sum())
    if not changed or not bool(torch.stack(changed).any()):
        return ""
    return "; ".join(
        f"a strided {str(tensor.dtype).removeprefix('torch.')} tensor of shape "
        f"{(*tensor.shape[:-1], tensor.shape[-1] // 2)}: {int(count)} cells between its elements changed"
        for (tensor, _), count in zip(wide, changed, strict=True)
        if int(count)
    )
