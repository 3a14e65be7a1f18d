"""One case of recurrence.lightning as tensors, and the calls that two engines have in common.

SGLang and vLLM carry the same two wrappers: one token a row from a slot, and the prefill of
one request into its slot. Queries, keys and values come as a layer's projection leaves
them, which is where rows may lie apart.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

from fuzz.adapter import Unsupported
from fuzz.engines.memory import Memory
from fuzz.engines.state_buffers import Allocations, Inputs, StatePool, numbers, outside
from oracle.recurrence.lightning_case import NONE

BLOCK = 256  # tokens: what models hand over as the block size, and the kernels' own
Accepts = Callable[[Any], str | None]


class Call:
    """Pool, inputs and what became of them. ``reserved``: places of the pool that no request has."""

    def __init__(self, engine: Any, case: Any, memory: Memory, reserved: int = 0):
        self.engine, self.case, self.memory = engine, case, memory
        self.inputs, self.allocations = Inputs(engine), Allocations(engine)
        self.pool = StatePool(engine, memory, case.pool, case.state_dtype, case.gap, reserved)
        self.rows = len(case.length)
        self.slots = case.slot[:, 0]
        # A layer keeps its decays as [heads, 1, 1]; kernels read them by pointer.
        self.decay = self.inputs(case.decay[:, None, None], "float32", contiguous=True)

    def tokens(self, at: Any) -> list[Any]:
        """q, k and v of the tokens that stand ``at``, [T, heads, head_dim]; with a strided presentation
        the three are slices of one projection."""
        made = [self.inputs(getattr(self.case, n)[at], self.case.input_dtype, contiguous=True) for n in "qkv"]
        if not self.engine.strided:
            return made
        together = self.engine.torch.stack(made, dim=1)
        return [together[:, i] for i in range(3)]

    def integers(self, values: Any) -> Any:
        """Slots, rows and offsets: int32 and contiguous, as every caller keeps them."""
        return self.inputs(np.asarray(values), "int32", contiguous=True)

    def places(self, slots: Any) -> Any:
        return self.integers([self.pool.place(int(s), NONE) for s in slots])

    def rounds(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of a decode: the tokens of each call, and its slots; a request without tokens left is a null row."""
        case = self.case
        calls = []
        for t in range(int(case.length.max())):
            alive = case.length > t
            calls.append((case.start[:-1] + np.where(alive, t, 0), np.where(alive, self.slots, NONE)))
        return calls

    def decoded(self, outputs: list[Any]) -> dict[str, Any]:
        """What is observed of a decode whose calls returned ``outputs``, each [B, ...]."""
        shape = self.case.q.shape[1:]
        rounds = np.stack([numbers(o).reshape(self.rows, *shape) for o in outputs])
        output = [rounds[:n, i] for i, n in enumerate(self.case.length)]
        return self.observed(output, [self.states([s]) for s in self.slots], self.slots)

    def states(self, slots: Any) -> np.ndarray:
        """The states of slots now; 0 for no slot."""
        nothing = np.zeros(self.case.pool.shape[1:], np.float32)
        return np.stack([self.pool.read(int(s)) if s != NONE else nothing for s in slots])

    def observed(self, output: list[Any], states: list[Any], written: Any, changed: int = 0) -> dict[str, Any]:
        """The fields; ``written``: the slots whose states had to change."""
        kept = self.pool.changed({int(s) for s in written}) + self.inputs.changed() + changed
        where = outside(self.memory, self.allocations)
        return {"outside": where, "kept": kept, "output": output, "states": states}


def full_precision(case: Any) -> str | None:
    """Models of these wrappers convert queries, keys and values to float32, and keep such a pool."""
    if (case.input_dtype, case.state_dtype) != ("float32", "float32"):
        return "its layers hand over float32 and keep float32 states"
    return "its caller scales queries itself" if case.scaled else None


def decode_accepts(case: Any) -> str | None:
    return full_precision(case) if case.operation == "decode" else "decodes one token a row"


def prefill_accepts(case: Any) -> str | None:
    """A prefill of tokens whose history, if any, lies in their own block: what stands before a block is
    asked about by a target of its own, so that its listing hides nothing else."""
    return _prefill(case) or ("history is asked about separately" if _history(case) else None)


def history_accepts(case: Any) -> str | None:
    """A prefill on top of a state, or of more than one block."""
    return _prefill(case) or (None if _history(case) else "asked about history only")


def _prefill(case: Any) -> str | None:
    if case.operation != "prefill":
        return "a prefill"
    if case.head_dim % 64:
        return "takes a head_dim of 64 or 128"
    return "saves no state on the way" if case.track_length.any() else full_precision(case)


def _history(case: Any) -> bool:
    """Whether a request has tokens or a state before the block of some token."""
    longest = min(BLOCK, case.split) if case.split else BLOCK
    return bool(((case.slot[:, 0] != NONE) & ((case.initial > 0) | (case.length > longest))).any())


def near(accepts: Accepts) -> Accepts:
    """What ``accepts`` does, without pools and scratch of 2^31 elements: a target of its own is asked about those."""
    return lambda case: accepts(case) or ("large buffers are asked about separately" if _large(case) else None)


def large(accepts: Accepts) -> Accepts:
    """What ``accepts`` does, with a pool or scratch of about 2^31 elements; the offsets used may pass that or not."""
    return lambda case: accepts(case) or (None if _large(case) else "asked about large buffers only")


def _large(case: Any) -> bool:
    return case.gap > 0 or case.rows_before > 0


def decode(engine: Any, case: Any, key: str) -> dict[str, Any]:
    """The wrapper ``key`` as layers call it: a batch of single tokens, and blocks of 32 columns."""
    with Memory(engine.torch, engine.device) as memory:
        call = Call(engine, case, memory)
        made = []
        for at, slots in call.rounds():
            query, keys, values = (x.unsqueeze(2).contiguous() for x in call.tokens(at))
            made.append((query, keys, values, call.pool.states, call.decay, call.places(slots), 32))
        memory.seal()
        outputs = []
        with call.allocations.watched(), engine.production():
            for arguments in made:
                outputs.append(engine.symbol(key)(*arguments))
        return call.decoded(outputs)


def prefill(engine: Any, case: Any, key: str) -> dict[str, Any]:
    """The wrapper ``key`` as layers call it: request by request, with its slot, which their engine has
    cleared where nothing came before."""
    needs_multiplier(engine, case)
    with Memory(engine.torch, engine.device) as memory, ExitStack() as stack:
        call = Call(engine, case, memory)
        fresh = [int(s) for s, initial in zip(call.slots, case.initial, strict=True) if s != NONE and not initial]
        for slot in fresh:
            call.pool.states[call.pool.places[slot]] = 0
        memory.seal()
        if engine.device == "cpu":
            stack.enter_context(_capable(engine.torch))
        outputs = [_prefill_one(engine, call, key, i) for i in range(call.rows)]
        nothing = np.zeros(case.pool.shape[1:], np.float32)
        states = [np.stack([nothing, call.states([s])[0]]) for s in call.slots]
        return call.observed(outputs, states, call.slots)


def _prefill_one(engine: Any, call: Call, key: str, i: int) -> np.ndarray:
    case, slot = call.case, int(call.slots[i])
    first, last = int(case.start[i]), int(case.start[i + 1])
    shape = (last - first, *case.q.shape[1:])
    if slot == NONE:  # callers never have such a row here
        return np.zeros(shape, np.float32)
    middle = min(first + case.split, last) if case.split else last
    parts = []
    for a, b in ((first, middle), (middle, last)):
        if a < b:
            token = [x.transpose(0, 1).contiguous() for x in call.tokens(slice(a, b))]
            state = call.pool.states[call.pool.places[slot]]
            with call.allocations.watched(), engine.production():
                parts.append(engine.symbol(key)(*token, state, call.decay, BLOCK))
    return np.concatenate([numbers(p).reshape(-1, *shape[1:]) for p in parts])


def needs_multiplier(engine: Any, case: Any) -> None:
    """Raise Unsupported where the device cannot multiply as exactly as the case asks."""
    if engine.device != "cpu" and case.multiplier == "float32" and case.operation == "prefill":
        raise Unsupported("products of matrices are taken as tfloat32 on a GPU")


def _capable(torch: Any) -> Any:
    """The prefill refuses old GPUs; a CPU has no compute capability to ask for."""
    from unittest import mock

    return mock.patch.object(torch.cuda, "get_device_capability", lambda *args: (9, 0))
