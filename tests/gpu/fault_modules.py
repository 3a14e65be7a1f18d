ADAPTER_MODULES = ("tests.gpu.fault_engine",)
