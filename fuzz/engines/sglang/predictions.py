"""Logits that hold nothing but their own argmax.

A verify of 8 requests with 64 tokens over a vocabulary of 151,936 would need
300 MB of logits to say which 512 tokens the target prefers. Production only asks
for the argmax of the last axis, so this stand-in answers that and nothing else:
any other use is a touched stub.
"""

from __future__ import annotations

from typing import Any

from fuzz.engines.closed import touch


class Predictions:
    """The logits of a verify block; ``tokens`` is int64 [rows], the argmax of
    each row. Behaves like a tensor in ``torch.argmax(logits, dim=-1)`` only."""

    def __init__(self, tokens: Any):
        self.tokens = tokens
        self.device = tokens.device

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        logits = args[0] if args else None
        if getattr(function, "__name__", "") != "argmax" or args[1:] or kwargs != {"dim": -1}:
            raise touch(f"logits: {getattr(function, '__name__', function)}{args[1:]} {kwargs or ''}")
        return logits.tokens.clone()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise touch(f"logits have no attribute {name!r}")
