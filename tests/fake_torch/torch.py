"""As much of torch as a worker on a GPU asks for before it runs an adapter, for tests of what happens around it."""

from types import SimpleNamespace

__version__ = "0.0"
cuda = SimpleNamespace(get_device_name=lambda device: f"no GPU ({device})", synchronize=lambda device=None: None)


def set_num_threads(count: int) -> None:
    pass
