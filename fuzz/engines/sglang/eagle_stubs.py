"""Stand-ins shared by the EAGLE and NGRAM adapters.

Buffers that a kernel indexes with a computed offset lie between guard zones
whose values no legal step can have, so that a read outside shows in the answer
instead of by luck.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from fuzz.engines.closed import ClosedStub
from fuzz.engines.sglang.commit_hook import CommitHook, model_config

MODEL_HOOK = "update_conv_state_after_mtp_verify"  # asked of models whose layers own their commit
GUARD = 64  # least elements before and after a guarded buffer


class Hook(CommitHook):
    """The recorder, under this release's name for the current step."""

    def __init__(self, engine: Any, on_call: Any = None):
        super().__init__(on_call)
        self._step = engine.fact("eagle.step_argument")

    def __call__(self, **handed: Any) -> None:
        step = handed.pop(self._step)
        super().__call__(last_correct_step_indices=step, **handed)

    def in_backend(self, *, present: bool, **attributes: Any) -> Any:
        """An attention backend with the hook, or a plain object without it: the
        AttributeError of a release that does not ask must come from its frame."""
        return self.backend(present=True, **attributes) if present else SimpleNamespace(**attributes)


def model_runner(backend: Any, *, recurrent: bool = True, pool: Any = None, **attributes: Any) -> ClosedStub:
    """The model runner as far as verify and commit read it. Older releases keep
    the answer to "has it recurrent state" on it, newer ones ask a function."""
    config = model_config(recurrent)
    return ClosedStub(
        "model runner",
        attn_backend=backend,
        model=ClosedStub("model", absent=(MODEL_HOOK,)),
        model_config=config,
        mambaish_config=config if recurrent else None,
        req_to_token_pool=pool,
        **attributes,
    )


def guarded(engine: Any, values: np.ndarray, dtype: str, case: Any, *, contiguous: bool = False) -> Any:
    """``values`` between guard zones of a node number beyond every request."""
    torch, nodes = engine.torch, len(case.pre) * case.draft_tokens
    guard = max(GUARD, nodes)  # a row stride of N instead of the width still ends inside
    step = 2 if engine.strided and not contiguous else 1
    size = values.size * step
    wide = torch.full((size + 2 * guard,), nodes + GUARD // 2, dtype=getattr(torch, dtype), device=engine.device)
    view = wide[guard : guard + size : step].view(values.shape)
    view.copy_(torch.from_numpy(values))
    return view
