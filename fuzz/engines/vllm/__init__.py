"""Adapters for vLLM. One module per sampler or kernel family; what differs between
releases stands in ``record/``."""

ADAPTER_MODULES = (
    "fuzz.engines.vllm.greedy_v1",
    "fuzz.engines.vllm.greedy_v2",
    "fuzz.engines.vllm.sampled_v1",
    "fuzz.engines.vllm.sampled_v2",
    "fuzz.engines.vllm.lengths",
    "fuzz.engines.vllm.lengths_v2",
    "fuzz.engines.vllm.draft_inputs_v1",
    "fuzz.engines.vllm.draft_inputs_v2",
    "fuzz.engines.vllm.aligned_states",
    "fuzz.engines.vllm.delta_rule",
    "fuzz.engines.vllm.convolution",
    "fuzz.engines.vllm.selective_scan",
    "fuzz.engines.vllm.lightning",
    "fuzz.engines.vllm.lifecycle_blocks",
)
