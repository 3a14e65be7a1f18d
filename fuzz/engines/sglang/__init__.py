"""Adapters for SGLang. One module per worker or kernel family; what differs
between releases stands in ``record/``."""

ADAPTER_MODULES = (
    "fuzz.engines.sglang.lengths",
    "fuzz.engines.sglang.lengths_locations",
    "fuzz.engines.sglang.lengths_dflash",
    "fuzz.engines.sglang.lengths_verify",
    "fuzz.engines.sglang.simulated",
    "fuzz.engines.sglang.track_slots",
    "fuzz.engines.sglang.boundary",
    "fuzz.engines.sglang.checkpoint_grid",
    "fuzz.engines.sglang.scatter_kernels",
    "fuzz.engines.sglang.scatter_backend",
    "fuzz.engines.sglang.eagle_commit",
    "fuzz.engines.sglang.eagle_update",
    "fuzz.engines.sglang.eagle_kernels",
    "fuzz.engines.sglang.ngram_order",
    "fuzz.engines.sglang.eagle_order",
    "fuzz.engines.sglang.dflash_commit",
    "fuzz.engines.sglang.dflash_accept",
    "fuzz.engines.sglang.dspark",
    "fuzz.engines.sglang.dflash_order",
    "fuzz.engines.sglang.dspark_order",
    "fuzz.engines.sglang.dflash_v1",
)
