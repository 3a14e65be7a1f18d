"""Adapters for SGLang. One module per worker or kernel family; what differs
between releases stands in ``record/``."""

ADAPTER_MODULES = (
    "fuzz.engines.sglang.dflash_commit",
)
