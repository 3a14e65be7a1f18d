"""What a run's verdicts mean for its exit code: "no verdict" is never "pass"."""

from __future__ import annotations

from collections import Counter

import pytest

from fuzz.verdict import Kind, exit_code


@pytest.mark.parametrize(
    ("verdicts", "unknown_red", "absent", "code"),
    [
        ({Kind.AGREE: 5}, 0, [], 0),
        ({Kind.AGREE: 5, Kind.UNSUPPORTED: 9}, 0, [], 0),
        ({Kind.AGREE: 5, Kind.DIVERGE: 1}, 1, [], 1),
        ({Kind.AGREE: 5, Kind.DIVERGE: 1}, 0, [], 0),
        ({Kind.AGREE: 5, Kind.FLAKY: 1}, 1, [], 1),
        ({Kind.AGREE: 5, Kind.INVALID_CASE: 1}, 0, [], 2),
        ({}, 0, [], 3),
        ({Kind.UNSUPPORTED: 9}, 0, [], 3),
        ({Kind.AGREE: 5}, 0, ["a target that should run"], 3),
        ({Kind.AGREE: 5, Kind.ORACLE_SUSPECT: 1}, 0, [], 3),
        ({Kind.AGREE: 5, Kind.OUT_OF_MEMORY: 1}, 0, [], 3),
        ({Kind.AGREE: 5, Kind.HARNESS_ERROR: 1, Kind.DIVERGE: 1}, 1, [], 4),
    ],
)
def test_exit_codes(verdicts, unknown_red, absent, code):
    assert exit_code(Counter(verdicts), unknown_red, absent) == code
