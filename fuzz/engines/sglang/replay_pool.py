"""How long a ring the engine itself makes for a window, or that it refuses to.

Server arguments are not parsed here: what they check before is read, and said where a divergence is listed.
"""

from __future__ import annotations

from typing import Any

from fuzz.adapter import Unsupported


def ring_places(engine: Any, case: Any) -> int:
    """Places of a ring in the engine's pool of a gated-delta model, with the case's ring as the engine's setting and
    its window as the number of draft tokens. Raises Unsupported where the engine refuses."""
    torch, one = engine.torch, dict.fromkeys(("intermediate_size", "conv_dim", "ssm_state_size", "num_heads"), 1)
    entry = (case.value_heads, case.value_size, case.key_size)
    shape = {"conv": [(1, 3)], "temporal": entry, "conv_kernel": 4, "head_dim": 1, "state_size": 1}
    dtype = engine.symbol("pool.dtypes")(
        conv=getattr(torch, case.input_dtype), temporal=getattr(torch, case.state_dtype)
    )
    model = engine.symbol("pool.gdn_params")(
        shape=engine.symbol("pool.gdn_shape")(**shape, **one), dtype=dtype, layers=[0]
    )
    try:
        pool = engine.symbol("pool.class")(
            size=1, spec_state_size=1, device=engine.device, mamba_layer_ids=[0], cache_params=model,
            speculative_num_draft_tokens=case.window, speculative_eagle_topk=1, enable_linear_replayssm_spec=True,
            linear_replayssm_cache_len=case.ring,
        )  # fmt: skip
    except ValueError as refusal:
        raise Unsupported(f"the engine refuses: {refusal}") from None
    return pool.mamba_cache.replayssm_d.shape[-2]
