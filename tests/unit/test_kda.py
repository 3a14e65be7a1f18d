"""What is particular to KDA: decays per key channel, and gates with a lower bound."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from fuzz.strategies.registry import structure_of
from fuzz.strategies.source import RandomSource
from oracle import contracts
from oracle.contract import InvalidCase
from oracle.recurrence import delta_walk
from oracle.recurrence.approximate import exact
from oracle.recurrence.delta_case import DeltaCase
from oracle.recurrence.delta_values import tokens
from oracle.recurrence.delta_walk import Rules, walk

KDA = contracts.get("recurrence.kda")


def test_rows_fade_each_by_itself():
    """S = (1, 2), nothing is written: rows fade by 1/2 and by 1/4."""
    after = Rules().advance(exact([[1.0], [2.0]]), exact([0.0, 1.0]), exact([0.0]), exact([0.5, 0.25]), exact([0.0]))
    assert after.value.tolist() == [[0.5], [0.5]]


def test_equal_decays_in_all_channels_are_the_gated_delta_rule(monkeypatch):
    structure, compared = structure_of("recurrence.gated_delta"), 0
    for i in range(200):
        case = structure(RandomSource(f"kda:{i}"))
        if case.gate != "given":
            continue
        mine = KDA.case_type(**{f.name: getattr(case, f.name) for f in fields(DeltaCase)}, lower_bound=0.0)
        plain = walk(case)

        def spread(_, r, case=case):
            x = tokens(case, r)
            return x | {"g": np.repeat(x["g"][..., None], case.key_dim, axis=-1)}

        monkeypatch.setattr(delta_walk, "tokens", spread)
        channels = walk(mine)
        monkeypatch.undo()
        assert (channels.states.value == plain.states.value).all()
        assert (channels.output.value == plain.output.value).all()
        compared += 1
    assert compared > 50


def test_bounded_gates_by_hand():
    """Rate e^0, a + bias = 0: half of the bound. Far up it is the bound, far down hardly anything."""
    case = replace(KDA.example, gate="bounded", lower_bound=-4.0)
    a = exact(np.array([0.0, 40.0, -40.0, -1.0]).reshape(1, 1, 1, 4))
    g = Rules().decay(case, a, np.zeros(1), np.array([[0.0, 0.0, 0.0, 1.0]])).value.ravel()
    assert g[[0, 1, 3]].tolist() == [-2.0, -4.0, -2.0] and -1e-16 < g[2] < 0.0


def test_the_rate_scales_the_argument_and_not_the_result():
    case = replace(KDA.example, gate="bounded", lower_bound=-4.0)
    g = Rules().decay(case, exact(np.full((1, 1, 1, 4), 1.0)), np.array([np.log(3.0)]), np.zeros((1, 4))).value
    assert np.allclose(g, -4.0 / (1.0 + np.exp(-3.0)), rtol=1e-14)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gate": "bounded"}, "lower_bound: 0 unless gates are bounded"),
        ({"lower_bound": -5.0}, "lower_bound: 0 unless gates are bounded"),
        ({"gate": "bounded", "lower_bound": 5.0}, "lower_bound: must be -64 to 0"),
        ({"gate": "sigmoid"}, "gate: must be one of given, softplus, bounded"),
    ],
)
def test_what_is_no_case_is_refused_by_name(changes, words):
    with pytest.raises(InvalidCase) as error:
        KDA.domain(replace(KDA.example, **changes))
    assert words in str(error.value)
