ADAPTER_MODULES = ("tests.fake_engine",)
