"""Rejection sampling of a draft chain: SGLang's Triton kernel, by the token rule and by the block rule.

The kernel takes a stride for rows, coins and candidates, so those are shown as the presentation asks; what it writes,
and the index of the block, its callers allocate contiguous. It draws the last token with one coin. Chains of one launch
are equally long; n-gram drafts have no place here, a proposal row with all mass on the draft stands for them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.adapter import adapter
from fuzz.engines.sglang.launches import counted
from fuzz.engines.sglang.outputs import Outputs, by_row

CONTRACT = "verify.chain_rejection"
KERNEL = "speculative_sampling_classic_kernel"
FIELDS = ("accepted", "path", "accepted_drafts", "bonus_token")
NOBODY = -977  # fills outputs: no token, no count


def one_length(case: Any) -> str | None:
    """What every caller of the kernel hands over."""
    if case.greedy.any():
        return "greedy requests do not reach this kernel"
    if (case.counts != case.counts[0]).any() or case.counts[0] == 0:
        return "all chains of a launch have one length, at least 1"
    if (case.drafts == -1).any():
        return "drafts are sampled: a placeholder never occurs"
    return None


def by_token(case: Any) -> str | None:
    return one_length(case) or (None if case.rule == "token" else "token rule only")


def by_block(case: Any) -> str | None:
    return one_length(case) or (None if case.rule == "block" else "block rule only")


def candidates(case: Any) -> np.ndarray:
    """Int64 [B, K + 1]: the current token, which decides nothing, and the drafts."""
    return np.concatenate([np.zeros((len(case.drafts), 1), np.int64), case.drafts], axis=1)


def inside(case: Any) -> bool:
    """True when every draft is a token of the vocabulary."""
    return bool(((case.drafts >= 0) & (case.drafts < case.vocabulary)).all())


class Call:
    """The tensors of one call by the kernel's names; what it wrote, read through ``accept_index``."""

    def __init__(self, engine: Any, case: Any):
        self.case, self.outputs = case, Outputs(engine)
        self.rows, self.slots = len(case.drafts), case.drafts.shape[1] + 1
        rows, slots = self.rows, self.slots
        index = np.arange(rows * slots).reshape(rows, slots)
        self.written = {
            "predicts": self.outputs.buffer((rows * slots,), "int32", NOBODY),
            "accept_index": self.outputs.buffer((rows, slots), "int32", -1),
            "accept_token_num": self.outputs.buffer((rows,), "int32", NOBODY),
        }
        following = np.where(np.arange(slots) + 1 < slots, np.arange(slots) + 1, -1)
        self.read = {
            "candidates": engine.tensor(candidates(case), "int64"),
            "retrive_index": self.outputs.input(index, "int64"),
            "retrive_next_token": self.outputs.input(np.tile(following, (rows, 1)), "int64"),
            "retrive_next_sibling": self.outputs.input(np.full((rows, slots), -1), "int64"),
            "uniform_samples": engine.tensor(case.coins, "float32"),
            "uniform_samples_for_final_sampling": self.outputs.input(case.final_coin, "float32"),
            "target_probs": self._masses(engine, case.target),
            "draft_probs": self._masses(engine, case.draft),
        }
        self._before = {name: tensor.clone() for name, tensor in self.read.items()}

    def _masses(self, engine: Any, rows: np.ndarray) -> Any:
        """As presented; between guard zones when a draft points beside its row, so that the same is found there each
        time and nothing outside the process is touched."""
        if inside(self.case):
            return engine.tensor(rows, "float32")
        buffer = self.outputs.buffer(rows.shape, "float32", 0)
        buffer.copy_(engine.torch.from_numpy(rows))
        return buffer

    def observed(self) -> dict[str, Any]:
        return read(self.case, self.written) | {"outside_writes": self.outside_writes()}

    def outside_writes(self) -> int:
        """Cells that no kept token owns, guard zones, and inputs that changed (as bits: a NaN equals itself)."""
        kept = np.clip(self.written["accept_token_num"].cpu().numpy(), 0, self.slots - 1)
        free = np.arange(self.slots)[None, :] > kept[:, None]
        predicts = self.written["predicts"].cpu().numpy().reshape(self.rows, self.slots)
        index = self.written["accept_index"].cpu().numpy()
        beside = int((free & (predicts != NOBODY)).sum() + (free & (index != -1)).sum())
        inputs = sum(int((_bits(self.read[n]) != _bits(b)).sum()) for n, b in self._before.items())
        return beside + inputs + self.outputs.changed()


def _bits(tensor: Any) -> np.ndarray:
    values = np.ascontiguousarray(tensor.cpu().numpy())
    return values.view(np.int32 if values.itemsize == 4 else np.int64)


def read(case: Any, written: dict[str, Any]) -> dict[str, Any]:
    """What a caller makes of the outputs: tokens at the places that ``accept_index`` names."""
    slots = case.drafts.shape[1] + 1
    accepted = written["accept_token_num"].cpu().tolist()
    predicts = written["predicts"].cpu().view(-1, slots).tolist()
    paths = [
        row[: min(max(a, 0), slots - 1) + 1]
        for row, a in zip(by_row(written["accept_index"].cpu().numpy(), slots), accepted, strict=True)
    ]
    tokens = [[predicts[r][n] if 0 <= n < slots else NOBODY for n in path] for r, path in enumerate(paths)]
    return {
        "accepted": accepted,
        "path": paths,
        "accepted_drafts": [t[:-1] for t in tokens],
        "bonus_token": [t[-1] for t in tokens],
    }


def _run(engine: Any, case: Any, key: str, **rule: Any) -> dict[str, Any]:
    call, function = Call(engine, case), engine.symbol(key)
    with counted(engine.symbol("rejection.module"), KERNEL) as launches, engine.production():
        function(**call.written, **call.read, threshold_single=1.0, threshold_acc=1.0, deterministic=True, **rule)
    engine.require_path(launches.count == 1, "rejection kernel")
    return call.observed()


@adapter(contract=CONTRACT, module="reject_sampling", symbol="chain_speculative_sampling_triton",
         observes=(*FIELDS, "outside_writes"), needs=("rejection.chain", "rejection.module"), execution="triton",
         accepts=by_token)  # fmt: skip
def token_rule(engine: Any, case: Any) -> dict[str, Any]:
    return _run(engine, case, "rejection.chain")


@adapter(contract=CONTRACT, module="reject_sampling", symbol="chain_speculative_sampling_triton(block)",
         observes=(*FIELDS, "outside_writes"), needs=("rejection.chain_block", "rejection.module"), execution="triton",
         accepts=by_block)  # fmt: skip
def block_rule(engine: Any, case: Any) -> dict[str, Any]:
    return _run(engine, case, "rejection.chain_block", block_verification=True)
