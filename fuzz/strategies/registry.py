"""Which strategy makes the cases of which contract."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from fuzz.strategies.source import Source


def structure_of(contract: str) -> Callable[[Source], Any]:
    """The ``structure`` function of a contract's strategy module, which is
    named like the contract's last part."""
    return import_module(f"fuzz.strategies.{contract.rpartition('.')[2]}").structure
