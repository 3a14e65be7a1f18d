"""Adapters for FlashInfer, whose kernels need a GPU."""

ADAPTER_MODULES: tuple[str, ...] = ("fuzz.engines.flashinfer.chain",)
