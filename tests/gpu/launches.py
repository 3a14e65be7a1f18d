"""How the engines of these tests are started on a GPU: by this interpreter, with its torch and without stand-ins."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fuzz import adapter as adapters
from fuzz.supervisor import PROJECT_ROOT, Launch

NOTHING: Mapping[str, str] = MappingProxyType({})


def launch_of(engine: str, module: str, env: Mapping[str, str] = NOTHING, **more: Any) -> Launch:
    """The launch of ``engine``, whose adapters are those of ``module``."""
    path = os.pathsep.join([str(PROJECT_ROOT), os.environ.get("PYTHONPATH", "")])
    return Launch(
        engine, "1.0", sys.executable, {**os.environ, "PYTHONPATH": path, **env}, {}, (module,),
        tuple(adapters.load(engine)), "cuda:0", shims=False, **more,
    )  # fmt: skip
