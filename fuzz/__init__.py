"""Drives published production code through the contracts of ``oracle``.

The supervisor side never imports torch or an engine; the worker side
(``fuzz.worker`` and the adapters under ``fuzz.engines``) needs only the standard
library, NumPy, torch and the engine under test.
"""
