"""Which cases vLLM's sampling adapters accept, decided without the engine."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from fuzz.engines.vllm import domains, logarithms
from oracle.verify.chain_rejection import ChainRejectionCase, Draft, Request, columns
from oracle.verify.rows import Mass, Row

HALF = Row((Mass(0, 0.5), Mass(1, 0.5)))
ONE = Row((Mass(0, 1.0),))
SKEW = Row((Mass(0, 0.75), Mass(1, 0.25)))
NOWHERE = Row((Mass(2, 1.0),))


def case(*drafts: Draft, rule: str = "token", greedy: bool = False) -> SimpleNamespace:
    request = Request(drafts, HALF, 0.5, 3, greedy)
    return SimpleNamespace(**columns(ChainRejectionCase(4, rule, (request,))))


PLAIN = Draft(0, HALF, SKEW, 0.25)


@pytest.mark.parametrize("rule", ["token", "block"])
def test_a_case_that_is_decided_far_from_every_edge_is_accepted(rule):
    assert logarithms.certain(case(PLAIN, PLAIN, rule=rule)) is None
    assert (domains.certain(case(PLAIN, PLAIN, rule=rule)) is None) == (rule == "token")


def test_a_batch_without_drafts_and_ids_that_no_proposer_gives_are_refused():
    assert "sampled elsewhere" in domains.reachable(case())
    for token in (-2, 4):
        assert "inside the vocabulary" in domains.reachable(case(replace(PLAIN, token=token)))
    assert domains.reachable(case(replace(PLAIN, token=-1))) is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.5, 0.9])
def test_rows_that_no_softmax_gives_are_refused(value):
    broken = Row((Mass(0, 0.5), Mass(1, value)))
    assert "softmax" in domains.reachable(case(replace(PLAIN, p=broken)))


def test_a_coin_of_zero_on_a_draft_without_mass_is_an_edge():
    edge = case(Draft(0, NOWHERE, SKEW, 0.0))
    assert domains.certain(edge) and domains.edges(edge) is None
    for other in (Draft(0, NOWHERE, SKEW, 0.5), Draft(0, HALF, SKEW, 0.0)):
        assert domains.certain(case(other)) is None and domains.edges(case(other))
    assert domains.certain(case(Draft(0, NOWHERE, SKEW, 0.0), greedy=True)) is None


def test_an_empty_residual_is_an_edge_only_where_the_coin_rejects():
    more = Row((Mass(0, 0.50000006), Mass(1, 0.50000006)))
    assert domains.edges(case(Draft(0, HALF, more, 0.99999994))) is None
    assert domains.certain(case(Draft(0, HALF, more, 0.5))) is None


def test_a_residual_that_cancels_is_refused_where_it_is_drawn_from():
    near = Row((Mass(0, 0.5000305), Mass(1, 0.4999695)))
    drawn, kept = Draft(0, HALF, near, 0.99999994), Draft(0, HALF, near, 0.5)
    assert "cancels" in logarithms.certain(case(drawn))
    assert logarithms.certain(case(kept)) is None


def test_a_coin_below_the_smallest_of_the_stream_decides_nothing_that_is_accepted():
    rare = Row((Mass(0, 2.0**-40), Mass(1, 1.0)))
    assert "smallest" in logarithms.certain(case(Draft(0, rare, ONE, 0.0)))
    assert logarithms.certain(case(Draft(0, rare, ONE, 0.5))) is None
    chain = [Draft(0, Row((Mass(0, 2.0**-12), Mass(1, 1 - 2.0**-12))), ONE, 0.0)] * 3
    assert logarithms.certain(case(*chain, rule="block"))


def test_long_blocks_are_refused_because_products_add_up_their_errors():
    many = [PLAIN] * (logarithms.MAX_BLOCK_DRAFTS + 1)
    assert logarithms.certain(case(*many, rule="block")) and logarithms.certain(case(*many)) is None
