"""Where compiled kernels are kept, so that a machine compiles each of them once.

Every toolchain has a folder of its own in the user's home; here they are one folder under
SPECORACLE_HOME, which a CI job caches and a fresh container brings along. One folder an
interpreter, because what is built against one torch does not load into another. A user's own
setting stands, and where the folder cannot be written the toolchains keep their own places.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from fuzz.engines.home import Home
from fuzz.engines.spec import EngineError

FOLDER = "kernels"
CACHES = {
    "TRITON_CACHE_DIR": "triton",
    "TVM_FFI_CACHE_DIR": "tvm-ffi",
    "SGLANG_JIT_CACHE_DIR": "sglang",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TORCH_EXTENSIONS_DIR": "torch-extensions",
}


def with_caches(env: Mapping[str, str], python: Path, home: Path | None = None) -> dict[str, str]:
    """``env`` of a worker that compiles kernels, with a place for each of them."""
    name = f"{python.name}-{hashlib.sha256(os.fsencode(python.absolute())).hexdigest()[:10]}"
    try:
        place = Home.locate(home).root / FOLDER / name
        place.mkdir(parents=True, exist_ok=True)
        writable = os.access(place, os.W_OK)
    except (OSError, EngineError):
        writable = False
    return ({key: str(place / folder) for key, folder in CACHES.items()} if writable else {}) | dict(env)
