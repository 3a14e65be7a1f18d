"""As much of torch as a worker on a GPU asks for around an adapter, for tests of what happens there."""

import os
from contextlib import nullcontext
from types import SimpleNamespace

__version__ = "0.0"
version = SimpleNamespace(cuda="0.0")


class Stream:
    device = "cuda:0"

    def __init__(self, device: str = "cuda:0"):
        pass

    def wait_stream(self, other: object) -> None:
        pass


cuda = SimpleNamespace(
    get_device_name=lambda device: f"{device} of {os.environ['CUDA_VISIBLE_DEVICES']}",
    synchronize=lambda device=None: None,
    Stream=Stream,
    current_stream=lambda device=None: Stream(),
    stream=lambda stream: nullcontext(),
    _sleep=lambda cycles: None,
)


def set_num_threads(count: int) -> None:
    pass
