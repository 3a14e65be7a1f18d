"""The process in which production code runs. Standard library, NumPy, torch
and the engine only; nothing of the supervisor."""
