"""The callers of chain rejection: EAGLE's verify, DSPARK's accept, and UNO's own form on sparse supports.

What is under test is the wiring: which coins, rows, strides and buffers reach the kernel and which token is read back.
The softmax in front of it is a step of its own; for the call it gives exactly the target rows of the case, so that no
rounding lies between the case and the decisions. torch's generators hand out the coins of the case.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from fuzz.adapter import adapter
from fuzz.engines.closed import ClosedStub, closed_function
from fuzz.engines.sglang import eagle_sample as eagle
from fuzz.engines.sglang import sampling_inputs
from fuzz.engines.sglang.chain_rejection import (
    CONTRACT,
    FIELDS,
    KERNEL,
    by_token,
    candidates,
    inside,
    one_length,
    read,
)
from fuzz.engines.sglang.launches import counted
from fuzz.engines.sglang.settings import settings

UNO_ROUNDING_ULP = 2.0
UNO_SUPPORT = 128  # tokens; wider supports take the dense kernel, and here a table of width times width
TREE_KERNEL = "tree_speculative_sampling_target_only"


def real_drafts(case: Any) -> str | None:
    return one_length(case) or (None if inside(case) else "hostile drafts are shown to the kernel itself")


def _rule(engine: Any, case: Any) -> dict[str, bool]:
    """Options for the block rule; raises Unsupported where a version has none."""
    if case.rule == "token":
        return {}
    engine.symbol("rejection.chain_block")
    return {"block_verification": True}


@contextmanager
def _target(engine: Any, case: Any, owner: Any, name: str) -> Iterator[list[tuple[int, ...]]]:
    """``owner.name``, the softmax, answers with the case's rows. Yields the shapes it was asked for."""
    rows, asked = engine.tensor(case.target.reshape(-1, case.vocabulary), "float32", contiguous=True), []

    def softmax(logits: Any = None, *_: Any, **options: Any) -> Any:
        asked.append(tuple((options["logits"] if logits is None else logits).shape))
        return rows.clone()

    with mock.patch.object(owner, name, softmax):
        yield asked


def _zeros(engine: Any, case: Any) -> Any:
    torch = engine.torch
    return torch.zeros(case.target.shape[0] * case.target.shape[1], case.vocabulary, device=engine.device)


# --- EAGLE ---


def _eagle_shape(case: Any) -> SimpleNamespace:
    """The chain as the tree that EAGLE hands over: each node's only child is the next."""
    tokens = candidates(case)
    nodes = tokens.shape[1]
    child = np.where(np.arange(nodes) + 1 < nodes, np.arange(nodes) + 1, -1)
    spare = np.full((len(tokens), 1), 0.5, np.float32)  # the coin of the last node is never asked for
    return SimpleNamespace(
        token=tokens,
        next_child=np.tile(child, (len(tokens), 1)),
        next_sibling=np.full(tokens.shape, -1),
        width=nodes,
        coin=np.concatenate([case.coins, spare], axis=1),
        final_coin=case.final_coin,
    )


@adapter(contract=CONTRACT, module="eagle_utils", symbol="eagle_sample(rejection)", observes=FIELDS,
         needs=("rejection.chain", "settings.config", "sampling.eagle", "sampling.eagle_module"), execution="worker",
         accepts=real_drafts)  # fmt: skip
def eagle_rejection(engine: Any, case: Any) -> dict[str, Any]:
    rule, shape = _rule(engine, case), _eagle_shape(case)
    made = eagle.verify_input(engine, shape)
    made.draft_probs = engine.tensor(case.draft, "float32")
    rows = len(case.drafts)
    batch = eagle.batch_of(engine, rows, sampling_inputs.parameters(engine, rows))
    output = ClosedStub("logits_output", next_token_logits=_zeros(engine, case))
    module = engine.symbol("sampling.eagle_module")
    in_module = engine.fact("rejection.eagle_softmax") == "module"
    owner, name = (module, "sampling_softmax") if in_module else (engine.torch.nn.functional, "softmax")
    fields = {"speculative_use_rejection_sampling": True}
    if engine.fact("rejection.block_setting"):
        fields["speculative_use_block_verification"] = bool(rule)
    with (
        settings(engine, interval=256, **fields),
        eagle.alone(engine),
        eagle.kernels(engine, _kernels()),
        _platform(engine, module),
        _target(engine, case, owner, name) as softmax,
        sampling_inputs.coins(engine, shape) as asked,
        counted(engine.symbol("rejection.module"), KERNEL) as launches,
        engine.production(),
    ):
        predict, lengths, index = engine.symbol("sampling.eagle")(made, batch, output)
    engine.require_path(launches.count == 1 and len(softmax) == 1, "rejection kernel behind EAGLE's verify")
    engine.require_path(sorted(asked) == ["final", "nodes"], "coins from torch's generators")
    return read(case, {"accept_token_num": lengths - 1, "accept_index": index, "predicts": predict})


def _kernels() -> dict[str, Any]:
    """What EAGLE's verify imports beside the rejection kernel. 0.5.14 renormalises whatever the parameters are, which
    without top-k and top-p changes nothing."""
    unchanged = {name: lambda masses, *_: masses for name in eagle.RENORMALISE}
    return unchanged | {TREE_KERNEL: closed_function(TREE_KERNEL)}


@contextmanager
def _platform(engine: Any, module: Any) -> Iterator[None]:
    """A CPU takes the greedy branch whatever was asked; the flag that says so is off for the call."""
    if engine.device == "cpu" and getattr(module, "_is_cpu", False):
        with mock.patch.object(module, "_is_cpu", False):
            yield
    else:
        yield


# --- DSPARK ---


def _dspark(engine: Any, case: Any, form: str) -> dict[str, Any]:
    rule, torch = _rule(engine, case), engine.torch
    rows, slots = candidates(case).shape
    module, given = engine.symbol("rejection.dspark_module"), SimpleNamespace(
        token=case.drafts, coin=case.coins, final_coin=case.final_coin
    )  # fmt: skip
    with (
        _target(engine, case, module.SoftmaxTemp, "execute") as softmax,
        sampling_inputs.coins(engine, given) as asked,
        counted(engine.symbol("rejection.module"), KERNEL) as launches,
        engine.production(),
    ):
        accepted, bonus, trimmed = getattr(module.AcceptSampling, form)(
            candidates=engine.tensor(candidates(case), "int64"),
            target_logits=_zeros(engine, case),
            draft_probs=engine.tensor(case.draft, "float32"),
            sampling_info=sampling_inputs.parameters(engine, rows),
            draft_input=ClosedStub("draft_input"),
            gamma=slots - 1,
            verify_num_draft_tokens=slots,
            cutoff_verify_lens=None,
            **rule,
        )
    engine.require_path(launches.count == 1 and len(softmax) == 1, "rejection kernel behind DSPARK's accept")
    engine.require_path(sorted(asked) == ["final", "nodes"], "coins from torch's generators")
    engine.require_path(not torch.any(trimmed), "no cap on the verified length")
    return {"accepted": accepted, "bonus_token": bonus}


@adapter(contract=CONTRACT, module="dspark", symbol="AcceptSampling.torch", observes=("accepted", "bonus_token"),
         needs=("rejection.chain", "rejection.dspark_module"), execution="triton", accepts=real_drafts)  # fmt: skip
def dspark_torch(engine: Any, case: Any) -> dict[str, Any]:
    return _dspark(engine, case, "torch")


@adapter(contract=CONTRACT, module="dspark", symbol="AcceptSampling.triton", observes=("accepted", "bonus_token"),
         needs=("rejection.chain", "rejection.dspark_module"), execution="triton", accepts=real_drafts)  # fmt: skip
def dspark_triton(engine: Any, case: Any) -> dict[str, Any]:
    """The last token is gathered by a kernel of its own."""
    return _dspark(engine, case, "triton")


# --- UNO ---


def _narrow(case: Any) -> str | None:
    wide = None if case.vocabulary <= UNO_SUPPORT else f"sparse supports hold at most {UNO_SUPPORT} tokens"
    return real_drafts(case) or by_token(case) or wide


@adapter(contract=CONTRACT, module="uno", symbol="_sparse_rejection_from_support", observes=("accepted", "bonus_token"),
         needs=("rejection.uno_sparse",), accepts=_narrow,
         rounding_ulp=UNO_ROUNDING_ULP)  # fmt: skip
def uno_sparse(engine: Any, case: Any) -> dict[str, Any]:
    """Supports in the order of token ids, all of the vocabulary. The residual is divided by its sum before it is
    summed again and drawn from: one rounding a mass and one more sum, 1 + 1 ULP at most beside the contract's.

    On a CPU the function runs as written, not compiled.
    """
    function = engine.symbol("rejection.uno_sparse")
    if engine.device == "cpu":
        function = getattr(function, "_torchdynamo_orig_callable", function)
    rows, slots = candidates(case).shape
    ids = np.arange(case.vocabulary)
    with engine.production():
        accepted, bonus = function(
            engine.tensor(candidates(case), "int64"),
            engine.tensor(np.broadcast_to(ids, (rows, slots, case.vocabulary)), "int64"),
            engine.tensor(case.target, "float32"),
            engine.tensor(np.broadcast_to(ids, (rows, slots - 1, case.vocabulary)), "int64"),
            engine.tensor(case.draft, "float32"),
            engine.tensor(np.pad(case.coins, ((0, 0), (0, 1)), constant_values=0.5), "float32"),
            engine.tensor(case.final_coin, "float32"),
        )
    return {"accepted": accepted, "bonus_token": bonus}
