"""commit.mixed_batch: both definitions on a small scope, the words of a refusal, and the rows by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from oracle.commit.mixed_batch import CONTRACT, MAX_IN_FLIGHT, WIDTH, MixedBatchCase, Request, order, second
from oracle.commit.token_table import location
from oracle.contract import InvalidCase
from oracle.trace import Trace

PROMPT, RUNNING = Request(20, 16, 0, 5), Request(9, 0, 3, 2)
GOOD = MixedBatchCase(True, True, False, (PROMPT, RUNNING))


def outcome(case):
    return CONTRACT.reference(case, Trace())


def test_the_two_definitions_agree_on_all_small_batches():
    prompts = [Request(n, c, 0, 1) for n in (1, 2, WIDTH) for c in (1, 2, WIDTH) if c <= n]
    running = [Request(n, 0, unread, 2) for n in (2, 3, WIDTH) for unread in (0, 1)]
    for speculative, first, then, last in product((False, True), prompts, running, (4, 30)):
        rows = (then, first, Request(5, 0, 0, last), Request(3, 2, 0, 3))
        case = MixedBatchCase(speculative, True, True, rows)
        assert CONTRACT.domain(case) == "functional"
        assert outcome(case) == second(case)


def test_a_running_request_extends_by_its_pending_token():
    found = outcome(GOOD)
    assert [found[n][1] for n in ("length", "host_length", "prefix", "extend")] == [9, 9, 8, 1]
    assert found["locations"][1] == [location(2, 8, WIDTH)]
    assert found["extend_tokens"] == 17


def test_a_prompt_is_left_as_it_was():
    found = outcome(GOOD)
    assert [found[n][0] for n in ("length", "prefix", "extend", "pool_row")] == [20, 4, 16, 5]
    assert found["locations"][0] == [location(5, p, WIDTH) for p in range(4, 20)]


def test_what_the_scheduler_knows_changes_nothing():
    read = replace(GOOD, requests=(PROMPT, replace(RUNNING, in_flight=0)))
    assert outcome(read) == outcome(GOOD) == outcome(replace(GOOD, host_lengths=True))


def test_running_requests_stand_behind_the_prompts():
    rows = (RUNNING, PROMPT, replace(RUNNING, pool_row=9), replace(PROMPT, pool_row=1))
    assert order(replace(GOOD, requests=rows)) == [1, 3, 0, 2]


BAD = {
    "there must be a prompt": replace(GOOD, requests=(RUNNING,)),
    "there must be a running request": replace(GOOD, requests=(PROMPT,)),
    "host_lengths": replace(GOOD, speculative=False),
    "share a pool row": replace(GOOD, requests=(PROMPT, replace(RUNNING, pool_row=5))),
    r"requests\[1\].pool_row": replace(GOOD, requests=(PROMPT, replace(RUNNING, pool_row=0))),
    r"requests\[1\].length": replace(GOOD, requests=(PROMPT, replace(RUNNING, length=WIDTH + 1))),
    r"requests\[0\].chunk": replace(GOOD, requests=(replace(PROMPT, chunk=21), RUNNING)),
    r"requests\[1\].in_flight: must be 0 to 8": replace(
        GOOD, requests=(PROMPT, Request(WIDTH, 0, MAX_IN_FLIGHT + 1, 2))
    ),
    r"requests\[1\].in_flight: must be 0 to 1": replace(GOOD, speculative=False, host_lengths=True),
    r"requests\[1\].in_flight: must be 0 to 0": replace(GOOD, overlap=False),
}


@pytest.mark.parametrize("words", BAD)
def test_a_case_outside_the_domain_names_its_field(words):
    with pytest.raises(InvalidCase, match=words):
        CONTRACT.domain(BAD[words])
