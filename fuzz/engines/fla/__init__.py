"""Adapters for flash-linear-attention, whose kernels the index knows as ``fla-core``."""

ADAPTER_MODULES: tuple[str, ...] = ("fuzz.engines.fla.delta_rule",)
