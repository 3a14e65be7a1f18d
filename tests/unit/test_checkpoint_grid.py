"""commit.checkpoint_grid: named cases, two definitions, the domain."""

from __future__ import annotations

from itertools import product

import pytest

from oracle.commit.checkpoint_grid import CONTRACT, CheckpointGridCase, Setting
from oracle.contract import InvalidCase


def grids(interval, page, chunk):
    case = CheckpointGridCase((Setting(interval, page, chunk),))
    CONTRACT.domain(case)
    outcome, _ = CONTRACT.run(case)
    assert outcome == CONTRACT.second(case)
    return outcome["prefill_grid"][0], outcome["track_grid"][0]


def test_named_cases():
    assert grids(256, 1, 64) == (64, 256)
    assert grids(96, 64, 64) == (64, 192)
    assert grids(256, 256, 64) == (256, 256)
    assert grids(100, 16, 64) == (64, 1600)


def test_the_grid_is_the_smallest_common_multiple_on_a_small_scope():
    for interval, page, chunk in product(range(1, 13), repeat=3):
        prefill, track = grids(interval, page, chunk)
        common = [n for n in range(1, 12**3 + 1) if not (n % interval or n % page or n % chunk)]
        assert track == common[0] and prefill % page == 0 and prefill % chunk == 0


@pytest.mark.parametrize("name", ["interval", "page", "chunk"])
@pytest.mark.parametrize("value", [0, -1, 1025])
def test_domain_names_the_field(name, value):
    sizes = {"interval": 64, "page": 1, "chunk": 64} | {name: value}
    with pytest.raises(InvalidCase, match=name):
        CONTRACT.domain(CheckpointGridCase((Setting(**sizes),)))


def test_no_settings_are_no_case():
    with pytest.raises(InvalidCase, match="settings"):
        CONTRACT.domain(CheckpointGridCase(()))


def test_kinds():
    assert CONTRACT.kind("track_grid", 192, 96) == "too_narrow"
    assert CONTRACT.kind("track_grid", 192, 384) == "too_wide"
    assert CONTRACT.kind("track_grid", 192, 100) == "not_a_multiple"
    assert CONTRACT.kind("track_grid", 192, 0) == "no_grid"
