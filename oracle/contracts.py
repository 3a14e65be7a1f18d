"""The list of contracts. A new contract is one module and one line here."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from oracle.contract import Contract

MODULES = (
    "oracle.verify.greedy_chain",
    "oracle.verify.ragged_layout",
    "oracle.verify.ngram_tree",
    "oracle.verify.chain_rejection",
    "oracle.verify.draft_tree",
    "oracle.verify.tree_sampling",
    "oracle.verify.target_distribution",
    "oracle.verify.greedy_tree",
    "oracle.verify.draft_select",
    "oracle.commit.checkpoint_steps",
    "oracle.commit.state_scatter",
    "oracle.commit.lengths",
    "oracle.commit.track_slots",
    "oracle.commit.checkpoint_grid",
    "oracle.commit.call_order",
    "oracle.commit.draft_inputs",
    "oracle.draft.mtp_chain",
    "oracle.commit.lifecycle",
    "oracle.commit.kv_move",
    "oracle.draft.graph_rows",
    "oracle.draft.inputs",
    "oracle.commit.aligned_states",
    "oracle.recurrence.gated_delta",
    "oracle.recurrence.kda",
    "oracle.recurrence.replay",
    "oracle.recurrence.kda_convolution_verify",
    "oracle.recurrence.causal_convolution",
    "oracle.recurrence.short_convolution",
    "oracle.recurrence.selective_scan",
    "oracle.recurrence.lightning",
    "oracle.commit.mixed_batch",
)


@cache
def all_contracts() -> dict[str, Contract]:
    """Every contract by name, in the order of ``MODULES``."""
    contracts = [import_module(m).CONTRACT for m in MODULES]
    return {c.name: c for c in contracts}


def get(name: str) -> Contract:
    """The contract called ``name``; KeyError lists the names there are."""
    try:
        return all_contracts()[name]
    except KeyError:
        raise KeyError(f"no contract {name!r}; there are {', '.join(all_contracts())}") from None
