"""A batch as runner 2's rejection samplers take it.

Rows of the batch are requests; their temperature and seed lie in tables by the
request's own state number, which is not its row. The states here run backwards and
leave one out, so that a kernel that confuses the two is seen.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.engines.vllm.chains import boundaries


class Batch:
    """``widths`` [B] tokens of each request's block, the current token included.

    ``positions`` [tokens] is the position of each token; ``seeds`` [B] what each
    request's coins grow from.
    """

    def __init__(self, engine: Any, widths: Any, *, temperature: Any, positions: Any, seeds: Any = None):
        rows = len(widths)
        self.states = rows + 1
        self.state_of_row = np.arange(rows, 0, -1)
        self.row_of_token = np.repeat(np.arange(rows), widths)
        self.step_of_token = np.concatenate([np.arange(w) for w in widths])
        temperatures, table = np.zeros(self.states, np.float32), np.zeros(self.states, np.int64)
        temperatures[self.state_of_row] = temperature
        table[self.state_of_row] = 0 if seeds is None else seeds

        def made(values: Any, dtype: str) -> Any:
            return engine.tensor(values, dtype, contiguous=True)

        self.arguments = (
            boundaries(engine, widths),
            made(positions, "int64"),
            made(self.state_of_row, "int32"),
            made(self.state_of_row[self.row_of_token], "int32"),
            made(self.step_of_token, "int32"),
            made(temperatures, "float32"),
            made(table, "int64"),
        )


def emitted(sampled: Any, count: Any) -> list[list[int]]:
    """The first ``count`` tokens of each row; behind them anything may stand."""
    return [row[:c] for row, c in zip(sampled.tolist(), count.tolist(), strict=True)]
