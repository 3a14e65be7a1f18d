"""The coins handed to FlashInfer's chain kernel, in the order in which it draws them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from fuzz.engines.flashinfer.chain import accepts, coins, observed
from fuzz.engines.flashinfer.known_coins import HEADERS, write_headers
from fuzz.strategies.chain_rejection import structure
from fuzz.strategies.source import RandomSource
from oracle.contract import FUNCTIONAL
from oracle.judgement import judge
from oracle.verify.chain_rejection import CONTRACT


class _Generator:
    def __init__(self, row: np.ndarray):
        self._left = list(row)

    def uniform(self) -> np.float32:
        return self._left.pop(0)


def _kernel(case: SimpleNamespace) -> dict:
    """What the kernel draws and when, in float32: tests up to the first rejection, one coin more for each position from
    there on, then the last token."""
    count, drafts = case.drafts.shape[1], case.drafts
    tokens, emitted = [], []
    for b, row in enumerate(coins(case)):
        generator, position = _Generator(row), count
        for i in range(count):
            token = drafts[b, i]
            kept = token >= 0 and generator.uniform() * case.draft[b, i, token] < case.target[b, i, token]
            if token < 0:
                generator.uniform()
            if not kept:
                position = i
                break
        for _ in range(position, count):
            generator.uniform()
        proposal = case.draft[b, position] if position < count else np.float32(0)
        left = np.maximum(case.target[b, position] - proposal, np.float32(0))
        above = np.flatnonzero(np.cumsum(left) > generator.uniform() * left.sum(dtype=np.float32))
        token = above[0] if len(above) else np.flatnonzero(left)[-1] if left.any() else -1
        kept = drafts[b, :position].tolist()
        tokens.append([*kept, int(token)] + [-1] * (count - position))
        emitted.append(position)
    return observed(tokens, emitted)


def test_the_coins_reach_the_decisions_they_are_for():
    shown = 0
    for i in range(500):
        made = structure(RandomSource(f"flashinfer:{i}"))
        if CONTRACT.domain(made) != FUNCTIONAL or accepts(case := SimpleNamespace(**CONTRACT.columns(made))):
            continue
        outcome, trace = CONTRACT.run(made)
        if "nothing_left" in trace.behaviours:
            continue
        seen = _kernel(case)
        if -1 in seen["bonus_token"]:  # nothing left behind an accept test on its edge
            continue
        verdict = judge(CONTRACT, outcome, seen)
        assert verdict.agrees, (made, verdict)
        shown += 1
    assert shown > 40


def test_a_coin_of_zero_and_the_block_rule_are_not_shown():
    columns = CONTRACT.columns(CONTRACT.example)
    assert accepts(SimpleNamespace(**columns)) is None
    assert "block" not in columns["rule"] and accepts(SimpleNamespace(**columns | {"rule": "block"}))
    assert accepts(SimpleNamespace(**columns | {"final_coin": np.zeros(1, np.float32)}))
    assert accepts(SimpleNamespace(**columns | {"greedy": np.array([True])}))


def test_outputs_are_read_row_by_row():
    assert observed([[4, 5, 6], [7, -1, -1]], [2, 0]) == {
        "accepted": [2, 0], "accepted_drafts": [[4, 5], []], "bonus_token": [6, 7],
    }  # fmt: skip


def test_headers_are_written_once(tmp_path):
    folder = write_headers(tmp_path / "headers")
    assert {p.name for p in folder.iterdir()} == set(HEADERS)
    before = {p: p.stat().st_mtime_ns for p in folder.iterdir()}
    write_headers(folder)
    assert before == {p: p.stat().st_mtime_ns for p in folder.iterdir()}
