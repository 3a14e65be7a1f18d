ADAPTER_MODULES = ("tests.gpu.guard_engine",)
