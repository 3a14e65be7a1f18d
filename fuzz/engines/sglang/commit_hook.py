"""The backend at the receiving end of a commit, as a recorder.

Workers hand the outcome of a verify to one hook of the attention backend. The
recorder keeps what was handed over and reads it as the outcome fields of the
commit contracts; it copies nothing itself.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from fuzz.engines.closed import ClosedStub

HOOK = "update_mamba_state_after_mtp_verify"
NONE = -1


class CommitHook:
    """Records the calls of the hook; ``on_call`` is told after each."""

    def __init__(self, on_call: Any = None):
        self.calls: list[dict[str, Any]] = []
        self._on_call = on_call

    def __call__(self, **handed: Any) -> None:
        self.calls.append(handed)
        if self._on_call is not None:
            self._on_call()

    def backend(self, *, present: bool, absent: tuple[str, ...] = (), **attributes: Any) -> ClosedStub:
        """An attention backend that has the hook, or has none."""
        if present:
            return ClosedStub("attention backend", absent, **{HOOK: self}, **attributes)
        return ClosedStub("attention backend", (HOOK, *absent), **attributes)

    def observed(self, track_slots: list[int]) -> dict[str, Any]:
        """``commits``, ``current_step`` and the effective ``checkpoint_step``.

        A row's checkpoint counts only when it goes to the row's own track slot:
        the hook ignores slot -1 by its documentation, and a checkpoint in another
        request's slot is none of this request.
        """
        if not self.calls:
            return {"commits": False, "current_step": [], "checkpoint_step": []}
        handed = self.calls[-1]  # a second commit of one round shows in commit.call_order
        current = handed["last_correct_step_indices"].tolist()
        return {"commits": True, "current_step": current, "checkpoint_step": _effective(handed, track_slots)}

    def swept(self, track_slots: Any) -> dict[str, Any]:
        """The steps of a sweep in which every row has a slot, as tensors where they are; empty without a commit."""
        if not self.calls:
            return {"current_step": track_slots[:0], "checkpoint_step": track_slots[:0]}
        handed = self.calls[-1]
        steps, slots = handed["mamba_steps_to_track"], handed["mamba_track_indices"]
        if steps is None or slots is None:
            steps = track_slots.new_full(track_slots.shape, NONE)
        else:
            steps = steps.masked_fill(slots != track_slots, NONE)
        return {"current_step": handed["last_correct_step_indices"], "checkpoint_step": steps}


def _effective(handed: dict[str, Any], track_slots: list[int]) -> list[int]:
    steps, slots = handed["mamba_steps_to_track"], handed["mamba_track_indices"]
    if steps is None or slots is None:
        return [NONE] * len(track_slots)
    return [
        step if slot == own != NONE else NONE
        for step, slot, own in zip(steps.tolist(), slots.tolist(), track_slots, strict=True)
    ]


def model_config(recurrent: bool) -> ClosedStub:
    """A model configuration for the engine's own question "has it recurrent
    state": a plain model of the transformers library, which the engine's table of
    linear-attention models knows or not."""
    plain = _plain_configuration()
    return ClosedStub(
        "model_config",
        hf_config=plain,
        is_draft_model=False,
        linear_attn_registry_result=("linear attention", plain) if recurrent else None,
    )


@cache
def _plain_configuration() -> Any:
    from transformers import PretrainedConfig

    return PretrainedConfig()
