ADAPTER_MODULES = ("tests.gpu.presentation_engine",)
