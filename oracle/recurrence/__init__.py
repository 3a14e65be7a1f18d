"""Contracts of the kernels that make the per-step states."""
