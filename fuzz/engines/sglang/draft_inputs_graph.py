"""The draft-extend graph's buffers, filled for one batch after another.

The buffers are those that the engine allocates, with its own first contents; ``fill`` is
called for the batch before and then for the batch. What padding rows hold afterwards is
read from the same buffers.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from fuzz.adapter import adapter
from fuzz.engines.bound import bound
from fuzz.engines.closed import ClosedStub

CONTRACT = "draft.graph_rows"
ROWS = ("tokens", "positions", "locations", "hidden", "lengths", "pool_rows", "committed")
PADDING = ("padding_lengths", "padding_writes", "padding_rows")
SELECTED = ("selected", "padding_selected")
HIDDEN = 4  # elements of a hidden state, all of them its number
MIXED = -1  # a hidden state whose elements disagree, or counts that do not fit together


def has_drafts(case: Any) -> str | None:
    """A block of the current token alone has nothing to extend; the engine's first
    contents of its buffers are right only with a draft."""
    return "blocks have a draft at least" if case.width - case.front < 2 else None


def batches(case: Any) -> list[tuple[str, int]]:
    """The batches in order: prefix of their columns, and the rows of their graph."""
    before = len(case.before_lengths)
    first = [("before_", case.bucket if before <= case.bucket else case.capacity)] if before else []
    return [*first, ("", case.bucket)]


class Batch:
    """One batch as tensors, laid out as the engine's callers hand it over."""

    def __init__(self, engine: Any, case: Any, prefix: str):
        def tensor(name: str, dtype: str = "int64", shift: int = 0) -> Any:
            return engine.tensor(getattr(case, prefix + name) + shift, dtype, contiguous=True)

        self.size = len(getattr(case, prefix + "lengths"))
        self.tokens = tensor("tokens").flatten()
        self.positions = tensor("positions").flatten()
        self.locations = tensor("locations").flatten()
        self.lengths = tensor("lengths")
        self.pool_rows = tensor("pool_rows")
        self.committed = tensor("committed", "int32")
        self.drafts = tensor("committed", "int32", -1)
        self.track_slots = tensor("track_slots")
        self.hidden = tensor("hidden", "float32").flatten()[:, None].repeat(1, HIDDEN)


class Buffers:
    """The shared buffers of all graphs, as they are after their allocation."""

    def __init__(self, engine: Any, case: Any):
        torch, tokens, rows = engine.torch, case.capacity * case.width, case.capacity
        self.case = case

        def full(size: int, value: int, dtype: str = "int64") -> Any:
            return torch.full((size,), value, dtype=getattr(torch, dtype), device=engine.device)

        self.input_ids, self.positions = full(tokens, 0), full(tokens, 0)
        self.out_cache_loc = full(tokens, 1)
        self.seq_lens = full(rows, case.fill, "int32")
        self.seq_lens_cpu = torch.full((rows,), case.fill, dtype=torch.int32)
        self.req_pool_indices, self.select_index = full(rows, 0), full(rows, 0)
        self.num_correct_drafts, self.num_accept_tokens = full(rows, 1, "int32"), full(rows, 1, "int32")
        self.hidden_states = torch.zeros((tokens, HIDDEN), device=engine.device)
        self.extend_seq_lens = full(rows, case.width, "int32")
        self.extend_start_loc = torch.arange(0, tokens, case.width, dtype=torch.int32, device=engine.device)

    def observed(self, counts: Any = None) -> dict[str, Any]:
        """Real and padding rows of the batch's graph. ``counts``: the buffer that says how
        many tokens of a row are committed, where it is not ``num_accept_tokens``."""
        case, b = self.case, len(self.case.lengths)
        ids, positions, locations = (
            t.view(case.capacity, case.width)[: case.bucket].tolist()
            for t in (self.input_ids, self.positions, self.out_cache_loc)
        )
        pool_rows = self.req_pool_indices[: case.bucket].tolist()
        committed = (self.num_accept_tokens if counts is None else counts)[: case.bucket].tolist()
        return {
            "tokens": ids[:b],
            "positions": positions[:b],
            "locations": locations[:b],
            "hidden": _numbers(self.hidden_states, case)[:b],
            "lengths": self.seq_lens[:b],
            "pool_rows": pool_rows[:b],
            "committed": committed[:b],
            "padding_lengths": self.seq_lens[b : case.bucket].tolist(),
            "padding_writes": [place for row in locations[b:] for place in row],
            "padding_rows": [p if c > 0 else 0 for p, c in zip(pool_rows[b:], committed[b:], strict=True)],
        }

    def selected(self) -> dict[str, Any]:
        case, b = self.case, len(self.case.lengths)
        own = [int(s) - i * case.width for i, s in enumerate(self.select_index[: case.bucket])]
        return {"selected": own[:b], "padding_selected": sum(not 0 <= s < case.width for s in own[b:])}

    def counts_that_fit(self) -> Any:
        """Committed tokens where both counts say the same."""
        fit = self.num_correct_drafts + 1 == self.num_accept_tokens
        return self.num_accept_tokens.where(fit | (self.num_accept_tokens < 0), MIXED)


def _numbers(hidden: Any, case: Any) -> list[list[int]]:
    whole = (hidden == hidden[:, :1]).all(dim=1)
    return hidden[:, 0].where(whole, MIXED).long().view(case.capacity, case.width).tolist()


def _fill(engine: Any, case: Any, key: str) -> dict[str, Any]:
    buffers = Buffers(engine, case)
    for prefix, bucket in batches(case):
        batch = Batch(engine, case, prefix)
        with engine.production():
            engine.symbol(key)(
                buffers.input_ids, buffers.positions, buffers.out_cache_loc,
                batch.tokens, batch.positions, batch.locations,
                buffers.seq_lens, buffers.req_pool_indices, buffers.num_correct_drafts, buffers.num_accept_tokens,
                buffers.select_index, None,
                batch.lengths, batch.pool_rows, batch.drafts, batch.committed, None,
                buffers.hidden_states, batch.hidden, None, None,
                batch.size, bucket, case.width, case.front, case.fill,
            )  # fmt: skip
    return buffers.observed(buffers.counts_that_fit()) | buffers.selected()


@adapter(contract=CONTRACT, module="multi_layer_eagle", symbol="fill_draft_extend_prepare_buffers_triton",
         observes=(*ROWS, *PADDING, *SELECTED), needs=("graph.fill",), execution="triton",
         accepts=has_drafts)  # fmt: skip
def fill(engine: Any, case: Any) -> dict[str, Any]:
    return _fill(engine, case, "graph.fill")


@adapter(contract=CONTRACT, module="multi_layer_eagle", symbol="fill_draft_extend_prepare_buffers_native",
         observes=(*ROWS, *PADDING, *SELECTED), needs=("graph.fill_native",), execution="torch",
         accepts=has_drafts)  # fmt: skip
def fill_native(engine: Any, case: Any) -> dict[str, Any]:
    return _fill(engine, case, "graph.fill_native")


def forward_batch(batch: Batch, **more: Any) -> ClosedStub:
    """The batch as a runner sees it."""
    fields = {
        "batch_size": batch.size,
        "input_ids": batch.tokens,
        "positions": batch.positions,
        "out_cache_loc": batch.locations,
        "seq_lens": batch.lengths,
        "seq_lens_cpu": batch.lengths.cpu(),
        "seq_lens_sum": int(batch.lengths.sum()),
        "req_pool_indices": batch.pool_rows,
        "extend_seq_lens": None,
        "extend_seq_lens_cpu": None,
        "mamba_track_indices": None,
        "out_cache_loc_virtual": None,
        "kv_loc_plan": None,
        "kv_loc_cols": None,
    }
    return ClosedStub("forward batch", **fields | more)


@adapter(contract=CONTRACT, module="multi_layer_eagle_v2", symbol="MultiStepDraftExtendCudaGraphRunner.prepare",
         observes=(*ROWS, *PADDING, *SELECTED, "rows_handed_out"), needs=("graph.runner", "graph.prepare"),
         execution="triton", accepts=has_drafts)  # fmt: skip
def prepare(engine: Any, case: Any) -> dict[str, Any]:
    """The runner's own method: which graph, what is filled, what replays are handed."""
    buffers, sizes = Buffers(engine, case), sorted({case.bucket, case.capacity})
    absent = dict.fromkeys(
        ("temperatures", "sampling_seed", "mamba_track_indices", "global_num_tokens_gpu",
         "global_num_tokens_for_logprob_gpu")
    )  # fmt: skip
    kept = ClosedStub("buffers", **absent, **{n: t for n, t in vars(buffers).items() if n != "case"})
    step = ClosedStub("step runner", _pad_to_bucket=lambda rows, _: min(s for s in sizes if s >= rows))
    runner = bound(
        engine.symbol("graph.runner"), "runner", buffers=kept, captured_req_width=case.width, capture_bs=sizes,
        require_mlp_tp_gather=False, require_gathered_buffer=False, num_front_tokens=case.front,
        seq_len_fill_value=case.fill, draft_extend_attn_backend_list=[], get_runner=lambda step_number: step,
    )  # fmt: skip
    for prefix, _ in batches(case):
        batch = Batch(engine, case, prefix)
        spec_info = SimpleNamespace(
            num_correct_drafts=batch.drafts, num_accept_tokens=batch.committed, hidden_states=batch.hidden
        )
        given = forward_batch(batch, spec_info=spec_info)
        with engine.production():
            engine.symbol("graph.prepare")(runner, given)
    handed = runner._replay_spec_info
    rows = {
        len(handed.num_accept_tokens),
        len(handed.extend_seq_lens_tensor),
        len(handed.positions) // case.width,
        runner.bs,
    }
    return (
        buffers.observed(buffers.counts_that_fit())
        | buffers.selected()
        | {"rows_handed_out": rows.pop() if len(rows) == 1 else MIXED}
    )
