"""SGLang's fused short convolutions: LFM's gated one, Qwen4's dilated one with a residual, Inkling's with its own
input.

LFM and Inkling say -1 for a null row; Qwen4 names slot 0, which belongs to nobody, and hands over 64-bit slots. LFM's
and Qwen4's lines lie as (channels, columns), Inkling's as (columns, channels). Qwen4's decode only moves the line and
makes what the convolution gets; the convolution behind it is torch's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from fuzz.adapter import adapter
from fuzz.engines.convolution import Convolution, handed_out
from fuzz.engines.memory import Memory

CONTRACT = "recurrence.short_convolution"
NULL_SLOT, NULL_BLOCK = -1, 0


def only(form: tuple[str, ...], operation: tuple[str, ...], dtypes: tuple[str, ...], **fields: Any) -> Any:
    """A domain: one of each, and every other field of the case as given."""

    def accepts(case: Any) -> str | None:
        if case.form not in form or case.operation not in operation:
            return f"{' or '.join(form)}, {' or '.join(operation)} only"
        if case.dtype not in dtypes:
            return f"{' or '.join(dtypes)} only"
        wrong = [f"{name} {value}" for name, value in fields.items() if getattr(case, name) != value]
        return f"{' and '.join(wrong)} only" if wrong else None

    return accepts


class Lines(Convolution):
    """A pool of lines, which for a convolution of the line's whole reach are windows."""

    def __init__(self, engine: Any, memory: Memory, case: Any, *, null: int, turned: bool):
        live = case.slot != -1
        shape = {
            "width": case.reach + 1,
            "columns": case.reach,
            "window_first": turned,
            "hostile": False,
            "bias": False,
        }
        types = {"input_dtype": case.dtype, "state_dtype": case.dtype, "tokens_before": 0, "overlapping": False}
        rows = {"row": np.where(live, np.arange(len(live)), -1), "scratch_rows": len(live), "bias_values": None}
        shown = SimpleNamespace(**(vars(case) | shape | types | rows))
        super().__init__(engine, memory, shown, first_slot=null + 1, scratch_turned=turned)
        self.null = null

    def _idle_rows(self, rows: int) -> list[int]:
        """Rows of null rows may be written, the one behind the batch may not."""
        return list(range(len(self.case.slot), rows))

    def packed_parts(self, *names: str) -> tuple[Any, ...]:
        """Inputs [tokens, channels] side by side, as one projection gives them."""
        made = []
        for name in names:
            x, _ = self.packed([getattr(self.case, name)])
            self.watch(x)
            made.append(x)
        return tuple(made)

    def indices(self, dtype: str) -> Any:
        made = self.engine.tensor(self.slots(range(len(self.case.slot)), self.null), dtype, contiguous=True)
        self.watch(made)
        return made

    def split(self, y: Any) -> list[np.ndarray]:
        """An output [tokens, channels] by request."""
        return np.split(self.numbers(y), np.cumsum(self.case.length)[:-1])

    def starts(self, dtype: str) -> Any:
        return self.engine.tensor(np.cumsum([0, *self.case.length]), dtype, contiguous=True)


@contextmanager
def _opened(engine: Any) -> Iterator[None]:
    """Wrappers that ask for GPU tensors are told that they have some; on a GPU nothing is changed."""
    if engine.device != "cpu":
        yield
        return
    from fuzz.engines import interpreter

    with interpreter.cuda_tensors():
        yield


@adapter(
    contract=CONTRACT, module="lfm_short_conv", symbol="fused_lfm_short_conv_decode",
    observes=("outside", "kept", "output", "state"), needs=("lfm.decode",), execution="triton",
    accepts=only(("gated",), ("decode",), ("bfloat16",), width=3),
)  # fmt: skip
def lfm_decode(engine: Any, case: Any) -> dict[str, Any]:
    return _lfm(engine, case, "lfm.decode", lambda lines: ())


@adapter(
    contract=CONTRACT, module="lfm_short_conv", symbol="fused_lfm_short_conv_prefill",
    observes=("outside", "kept", "output", "state"), needs=("lfm.prefill",), execution="triton",
    accepts=only(("gated",), ("prefill",), ("bfloat16",), width=3),
)  # fmt: skip
def lfm_prefill(engine: Any, case: Any) -> dict[str, Any]:
    def more(lines: Lines) -> tuple[Any, ...]:
        return engine.tensor(case.initial, "bool", contiguous=True), int(case.length.max())

    return _lfm(engine, case, "lfm.prefill", more)


def _lfm(engine: Any, case: Any, key: str, more: Any) -> dict[str, Any]:
    with Memory(engine.torch, engine.device) as memory:
        lines = Lines(engine, memory, case, null=NULL_SLOT, turned=False)
        b, c, x = lines.packed_parts("before", "behind", "x")
        out = lines.output_like(x)
        where = (lines.starts("int32"),) if case.operation == "prefill" else ()
        arguments = (b, c, x, lines.weight, lines.pool, *where, lines.indices("int32"), *more(lines))
        memory.seal()
        with handed_out(engine.torch, out), engine.production():
            y = engine.symbol(key)(*arguments)
        return lines.observe() | {"output": lines.split(y), "state": lines.state()}


@adapter(
    contract=CONTRACT, module="qwen4_short_conv", symbol="fused_qwen4_short_conv_state",
    observes=("outside", "kept", "state", "taps"), needs=("qwen4.state",), execution="triton",
    accepts=only(("other_residual",), ("decode",), ("bfloat16", "float16")),
)  # fmt: skip
def qwen4_state(engine: Any, case: Any) -> dict[str, Any]:
    rows = len(case.slot)
    with Memory(engine.torch, engine.device) as memory:
        lines = Lines(engine, memory, case, null=NULL_BLOCK, turned=False)
        x = lines.input(case.x)
        lines.watch(x)
        out = lines.output_like(engine.torch.empty((rows, case.channels, case.reach + 1), dtype=x.dtype, device="meta"))
        indices = lines.indices("int64")
        memory.seal()
        with _opened(engine), handed_out(engine.torch, out), engine.production():
            taps = engine.symbol("qwen4.state")(lines.pool, indices, x)
        return lines.observe() | {"state": lines.state(), "taps": list(lines.numbers(taps)[:, None])}


@adapter(
    contract=CONTRACT, module="qwen4_short_conv", symbol="fused_qwen4_verify_conv",
    observes=("outside", "kept", "output", "states", "state"), needs=("qwen4.verify",), execution="triton",
    accepts=only(("other_residual",), ("verify",), ("bfloat16",), activation="silu"),
)  # fmt: skip
def qwen4_verify(engine: Any, case: Any) -> dict[str, Any]:
    """A null row has no real step: all of it is padding."""
    with Memory(engine.torch, engine.device) as memory:
        lines = Lines(engine, memory, case, null=NULL_BLOCK, turned=False)
        x, residual = lines.input(case.x), lines.input(case.before)
        weight = lines.weight.unsqueeze(1)
        real = np.arange(case.steps) < np.where(case.slot == -1, 0, case.valid)[:, None]
        valid = engine.tensor(real.reshape(-1), "bool", contiguous=True)
        lines.watch(x, residual, valid)
        out = lines.output_like(x)
        arguments = (x, residual, weight, lines.pool, lines.indices("int64"), valid, case.steps, case.dilation)
        memory.seal()
        with _opened(engine), handed_out(engine.torch, out), engine.production():
            y = engine.symbol("qwen4.verify")(*arguments, lines.scratch)
        return lines.observe() | {"output": lines.split(y), "states": lines.states(), "state": lines.state()}
