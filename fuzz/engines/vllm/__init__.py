"""Adapters for vLLM. One module per sampler or kernel family; what differs between
releases stands in ``record/``."""

ADAPTER_MODULES = (
    "fuzz.engines.vllm.greedy_v1",
    "fuzz.engines.vllm.greedy_v2",
)
