"""The KDA verify kernel that convolves, gates and advances in one launch, as the attention backend calls it: windows
are [slots, 3, channels] in memory, and what is not kept is not allocated."""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.adapter import Unsupported, adapter
from fuzz.engines.memory import Memory, bits
from oracle.recurrence.kda_convolution_case import NONE, WIDTH
from oracle.recurrence.words import POISON, UNTOUCHED


@adapter(
    contract="recurrence.kda_convolution_verify", module="kda", symbol="fused_kda_conv_gating_verify",
    observes=("outside", "kept", "output", "windows", "states", "records"), needs=("kda.convolution_verify",),
    execution="triton",
)  # fmt: skip
def verify(engine: Any, case: Any) -> dict[str, Any]:
    if case.ring and not engine.fact("kda.convolution_ring"):
        raise Unsupported("this version writes states only")
    with Memory(engine.torch, engine.device) as memory:
        call = _Call(engine, memory, case)
        memory.seal()
        call.run()
        return call.observed()


class _Call:
    """Pools, scratch and rings of one call. One more scratch row is what idle rows name."""

    def __init__(self, engine: Any, memory: Memory, case: Any):
        self.engine, self.memory, self.case, self.torch = engine, memory, case, engine.torch
        self.input_dtype = getattr(self.torch, case.input_dtype)
        heads, k, v, channels = case.value_heads, case.key_size, case.value_size, case.key_heads * case.key_size * 2
        channels += heads * v
        self.lines = self._filled("windows kept", (case.slots, WIDTH - 1, channels), self.input_dtype)
        self.pool = self._filled("states kept", (case.slots, heads, v, k), self.torch.float32)
        for r in case.requests:
            if r["slot"] != NONE:
                self.lines[r["slot"]] = self._values(r["line"].T).to(self.input_dtype)
                self.pool[r["slot"]] = self._values(r["state"].swapaxes(-1, -2)).float()
        rows = case.rows + 1
        self.windows = self._filled("scratch of windows", (rows, case.steps, WIDTH - 1, channels), self.input_dtype)
        self.states = self.rings = None
        if case.ring:
            shapes = {
                "rawv": (heads, case.ring, v), "rawk": (case.key_heads, case.ring, k), "g": (heads, case.ring, k),
                "beta": (heads, case.ring),
            }  # fmt: skip
            dtypes = {"rawv": self.input_dtype, "rawk": self.input_dtype}
            self.rings = {
                n: self._filled(f"ring of {n}", (case.slots, *shape), dtypes.get(n, self.torch.float32))
                for n, shape in shapes.items()
            }
        else:
            self.states = self._filled("scratch of states", (rows, case.steps, heads, v, k), self.torch.float32)
        self._pool_before = bits(self.torch, self.pool).clone()

    def _filled(self, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        made = self.memory.zeros((1, *shape), dtype)
        self.memory.know(name, made)
        return made[0].fill_(POISON)

    def _values(self, values: np.ndarray) -> Any:
        return self.torch.from_numpy(np.ascontiguousarray(values)).to(self.engine.device)

    def _tokens(self, name: str) -> Any:
        """[steps of all requests, ...] of the input type; rows apart from each other when strided."""
        values = np.concatenate([r[name].reshape(self.case.steps, -1) for r in self.case.requests])
        flat = self._values(values).to(self.input_dtype)
        if not self.engine.strided:
            return flat
        wide = self.torch.full((len(flat), flat.shape[1] + 8), POISON, dtype=flat.dtype, device=flat.device)
        wide[:, : flat.shape[1]] = flat
        return wide[:, : flat.shape[1]]

    def run(self) -> None:
        case, engine = self.case, self.engine
        slots = engine.tensor([r["slot"] for r in case.requests], "int32", contiguous=True)
        rows = [case.rows if r["row"] == NONE else r["row"] for r in case.requests]
        weight_dtype = getattr(self.torch, case.weight_dtype)
        bias = self._values(case.bias_values).to(weight_dtype) if case.bias else None
        rings = {f"replayssm_{n}": ring for n, ring in self.rings.items()} if self.rings else {}
        rings |= {"cache_ring": True} if self.rings else {}
        with engine.production():
            out = engine.symbol("kda.convolution_verify")(
                self._tokens("x"), self._values(case.weight_values).to(weight_dtype), bias,
                self.lines.transpose(-1, -2), slots, self.windows.transpose(-1, -2),
                engine.tensor(rows, "int32", contiguous=True), self._tokens("a"), self._tokens("b"),
                self._values(case.A_log_values).float(), self._values(case.dt_bias_values).float().flatten(),
                self.pool, slots, self.states, case.used_scale, case.steps, case.key_heads, case.value_heads,
                case.key_size, case.value_size, lower_bound=case.lower_bound if case.gate == "bounded" else None,
                use_qk_l2norm_in_kernel=case.normalise, **rings,
            )  # fmt: skip
        self.out = out.reshape(len(case.requests), case.steps, case.value_heads, case.value_size)
        for o, r in zip(self.out, case.requests, strict=True):
            if r["slot"] == NONE:
                o.zero_()  # whatever the allocation held

    def observed(self) -> dict[str, Any]:
        case = self.case
        seen: dict[str, Any] = {
            "outside": self.memory.outside() or UNTOUCHED, "kept": self._kept(),
            "output": [_numbers(o) for o in self.out], "windows": [], "states": [], "records": [],
        }  # fmt: skip
        for r in case.requests:
            row, slot = (r["row"], r["slot"]) if r["row"] != NONE else (case.rows, 0)
            seen["windows"].append(_numbers(self.windows[row]).swapaxes(-1, -2))
            if self.states is not None:
                seen["states"].append(_numbers(self.states[row]).swapaxes(-1, -2))
                seen["records"].append(np.zeros((0, self._record_size()), np.float32))
            else:
                seen["states"].append(np.zeros((0, case.value_heads, case.key_size, case.value_size), np.float32))
                seen["records"].append(self._record(slot))
        return seen

    def _record(self, slot: int) -> np.ndarray:
        """Key, value, log gate and beta of each place of a ring."""
        case = self.case
        parts = [_numbers(self.rings[n][slot]).swapaxes(0, 1) for n in ("rawk", "rawv", "g", "beta")]
        return np.concatenate([p.reshape(case.ring, -1) for p in parts], 1)

    def _record_size(self) -> int:
        case = self.case
        return case.key_heads * case.key_size + case.value_heads * (case.value_size + case.key_size + 1)

    def _kept(self) -> int:
        """Cells changed of the pool, and of windows, scratch rows and rings that belong to no request."""
        changed = int((bits(self.torch, self.pool) != self._pool_before).sum())
        slots, rows = ({r[n] for r in self.case.requests} for n in ("slot", "row"))
        free_slots = [s for s in range(self.case.slots) if s not in slots]
        free_rows = [n for n in range(self.case.rows) if n not in rows]
        watched = [(self.lines, free_slots), (self.windows, free_rows)]
        watched += [(self.states, free_rows)] if self.states is not None else []
        watched += [(ring, free_slots) for ring in (self.rings or {}).values()]
        return changed + sum(int((tensor[places] != POISON).sum()) for tensor, places in watched)


def _numbers(tensor: Any) -> np.ndarray:
    return tensor.detach().float().cpu().numpy().copy()
