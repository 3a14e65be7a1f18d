"""How cases are made: one module per contract, each with ``structure(source)``
and ``expand(structure)``. See ``fuzz.strategies.source``."""
