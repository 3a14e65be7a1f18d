"""Linear attention with one decay a head in vLLM: MiniMax's two wrappers, and Bailing's round of drafts.

The round keeps one slot a step for each request, as the engine's other recurrent layers do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.adapter import adapter
from fuzz.engines import lightning_calls as calls
from fuzz.engines.lightning_calls import Call
from fuzz.engines.memory import Memory
from fuzz.engines.state_buffers import numbers
from oracle.recurrence.lightning_case import NONE

CONTRACT = "recurrence.lightning"
FIELDS = ("outside", "kept", "output", "states")
COLUMNS = 32  # of a state that one program takes, as the layer asks


@adapter(
    engine="vllm", contract=CONTRACT, module="lightning_attn", symbol="linear_decode_forward_triton", observes=FIELDS,
    needs=("lightning.decode",), execution="triton", accepts=calls.decode_accepts,
)  # fmt: skip
def linear_decode(engine: Any, case: Any) -> dict[str, Any]:
    return calls.decode(engine, case, "lightning.decode")


@adapter(
    engine="vllm", contract=CONTRACT, module="lightning_attn", symbol="jit_linear_forward_prefix", observes=FIELDS,
    needs=("lightning.prefix",), execution="triton", accepts=calls.prefill_accepts,
)  # fmt: skip
@adapter(
    engine="vllm", contract=CONTRACT, module="lightning_attn", symbol="jit_linear_forward_prefix(history)",
    observes=FIELDS, needs=("lightning.prefix",), execution="triton", accepts=calls.history_accepts,
)  # fmt: skip
def linear_prefill(engine: Any, case: Any) -> dict[str, Any]:
    return calls.prefill(engine, case, "lightning.prefix")


def round_accepts(case: Any) -> str | None:
    return calls.full_precision(case) if case.operation == "accepted" else "a round of drafts with one slot a step"


@adapter(
    engine="vllm", contract=CONTRACT, module="bailing_linear_attn", symbol="bailing_linear_attention_decode_spec",
    observes=FIELDS, needs=("bailing.round",), execution="triton", accepts=round_accepts,
)  # fmt: skip
def bailing_round(engine: Any, case: Any) -> dict[str, Any]:
    with Memory(engine.torch, engine.device) as memory:
        call = Call(engine, case, memory)
        query, keys, values = call.tokens(slice(None))
        places = [[call.pool.place(int(s), NONE) for s in row] for row in case.slot]
        table = call.inputs(np.array(places), "int32")
        counts, starts = call.integers(case.accepted), call.integers(case.start)
        memory.seal()
        with call.allocations.watched(), engine.production():
            output = engine.symbol("bailing.round")(
                query, keys, values, call.pool.states, call.decay, table, starts, counts, q_start=0,
                q_end=int(case.start[-1]), slot_start=0, slot_end=call.rows, block_size=COLUMNS,
            )  # fmt: skip
        made = numbers(output).reshape(-1, *case.q.shape[1:])
        own = [case.slot[i, :n] for i, n in enumerate(case.length)]
        outputs = [made[a:b] for a, b in zip(case.start[:-1], case.start[1:], strict=True)]
        return call.observed(outputs, [call.states(slots) for slots in own], np.concatenate(own))
