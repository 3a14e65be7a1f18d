"""What a worker does before its first engine import on a machine without a GPU.

Two gaps are closed and no more. torchvision's compiled part does not load beside a CPU torch, so its two operators that
Python code looks up while importing are declared. GPU-only packages get stub modules with exactly the names that the
version's ``imports.toml`` lists; a package that is really installed is left alone. Both must run before the engine, and
neither gives the names any behaviour: calling one raises `StubTouched`.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path

from fuzz.engines import closed

TORCHVISION_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)

# An operator dies with the library object that defined it, so the object must outlive the engine.
_kept: list[object] = []


def install(stubs: Mapping[str, Sequence[str]], *, torchvision: bool = True) -> tuple[str, ...]:
    """Declare the operators and install `stubs` (module -> names). Returns the stub modules that were installed.

    Call once, before the engine; imports torch. Touches noted while importing are not findings: take them afterwards.
    """
    if torchvision:
        declare_torchvision_operators()
    packages = {_package(module) for module in stubs}
    absent = {package for package in packages if importlib.util.find_spec(package) is None}
    installed = [module for module in stubs if _package(module) in absent]
    for module in installed:
        add_stub_module(module, stubs[module])
    return tuple(installed)


def declare_torchvision_operators() -> None:
    """Declare torchvision's operators unless its own compiled part loads or they were declared before."""
    import torch

    if _kept or hasattr(torch.ops.torchvision, "nms"):
        return
    spec = importlib.util.find_spec("torchvision")
    for compiled in Path(spec.origin).parent.glob("_C*.so") if spec and spec.origin else ():
        with contextlib.suppress(OSError):  # built for another torch, or for one with CUDA
            torch.ops.load_library(str(compiled))
            return
    library = torch.library.Library("torchvision", "DEF")
    for schema in TORCHVISION_OPERATORS:
        library.define(schema)
    _kept.append(library)


def add_stub_module(name: str, names: Sequence[str]) -> types.ModuleType:
    """Put a closed module `name` into ``sys.modules``; each of `names` is a closed function.

    Its parent package is not made: ``from package.part import name`` finds the part without it, and code that tries
    ``import package`` to learn whether the package exists (SGLang then turns on AMX paths) still gets the true answer.
    """
    module = types.ModuleType(name, "Closed stub of a GPU-only package.")
    # find_spec reads this; None there is a ValueError in code that only asks whether the package exists.
    module.__spec__ = importlib.machinery.ModuleSpec(name, loader=None, is_package=True)
    module.__path__ = []
    module.__getattr__ = _refuse(name)
    for each in names:
        setattr(module, each, closed.closed_function(f"{name}.{each}"))
    sys.modules[name] = module
    return module


def _package(module: str) -> str:
    return module.partition(".")[0]


def _refuse(module: str):
    def __getattr__(name: str):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        raise closed.StubNameMissing(f"stub package {module} has no {name!r}", name=module)

    return __getattr__
