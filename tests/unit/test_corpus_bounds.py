"""No case that a domain lets through overflows NumPy, an engine's int32 indices,
or the memory of who expands it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from fuzz import corpus
from fuzz.frozen import CorpusError, parse, to_text
from oracle import case as case_
from oracle import contracts
from oracle.contract import MAX_LENGTH, MAX_RECORDS, InvalidCase

NAMES = list(contracts.all_contracts())
HOSTILE = (2**31, 2**32, 2**53 + 1, 2**62 + 1, 2**63 - 1, 2**63, 2**100, -(2**31) - 1, -(2**63), -(2**63) - 1)


def places(plain, path=()):
    """The place of every integer in a case of JSON values."""
    if isinstance(plain, dict):
        return [p for k, v in plain.items() for p in places(v, (*path, k))]
    if isinstance(plain, list):
        return [p for k, v in enumerate(plain) for p in places(v, (*path, k))]
    return [path] if type(plain) is int else []


def put(plain, path, value):
    for step in path[:-1]:
        plain = plain[step]
    plain[path[-1]] = value


EXAMPLES = {
    name: {case_.to_plain(contracts.get(name).example).__repr__(): contracts.get(name).example}
    | {f.name: f.case for _, f in corpus.load() if f.contract == name}
    for name in NAMES
}


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_integer_anywhere_is_refused_or_expands(name):
    contract = contracts.get(name)
    accepted = 0
    for case in EXAMPLES[name].values():
        text = json.dumps(case_.to_plain(case))
        for path in places(json.loads(text)):
            plain = json.loads(text)
            for value in HOSTILE:
                put(plain, path, value)
                try:
                    hostile = case_.from_plain(contract.case_type, plain)
                    contract.domain(hostile)
                except InvalidCase as error:
                    assert str(error), path
                    continue
                accepted += 1
                with np.errstate(all="raise"):
                    contract.columns(hostile)
                    outcome = contract.run(hostile)[0]
                for length in outcome.get("post", outcome.get("published", [])):
                    assert length <= MAX_LENGTH + 64
                # Only lengths and a seed may be that large; an index or a size may not.
                assert path[-1] in ("pre", "position", "seed", "race_seed", "gap", "vocabulary"), (path, value)
    assert accepted < 800


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("commit.call_order", "grid"),
        ("commit.checkpoint_steps", "grid"),
        ("commit.track_slots", "grid"),
        ("commit.call_order", "requests.track_slot"),
        ("commit.checkpoint_steps", "requests.track_slot"),
        ("commit.track_slots", "requests.slots"),
        ("verify.greedy_chain", "requests.pre"),
        ("commit.state_scatter", "state_entry"),
        ("commit.state_scatter", "window_channels"),
    ],
)
def test_one_above_the_bound_is_refused_by_name(name, field):
    contract = contracts.get(name)
    record, _, member = field.rpartition(".")
    above = 2**62 + 1 if member == "pre" else 2**31
    case = contract.example
    if record:
        first = case.requests[0]
        value = (above, *getattr(first, member)[1:]) if member == "slots" else above
        case = replace(case, requests=(replace(first, **{member: value}), *case.requests[1:]))
    elif member in ("state_entry", "window_channels"):
        case = replace(case, **{member: (0, above, 1) if member == "state_entry" else (above,)})
    else:
        case = replace(case, **{member: above})
    with pytest.raises(InvalidCase, match=member):
        contract.domain(case)


@pytest.mark.parametrize("name", NAMES)
def test_more_records_than_can_be_walked_are_refused(name):
    contract = contracts.get(name)
    record = getattr(contract.example, contract.records)[0]
    case = replace(contract.example, **{contract.records: (record,) * (MAX_RECORDS + 1)})
    with pytest.raises(InvalidCase, match=contract.records):
        contract.domain(case)


@pytest.mark.parametrize("name", ["commit.checkpoint_steps", "commit.lengths"])
def test_records_that_expand_to_gigabytes_are_refused(name):
    contract = contracts.get(name)
    wide = {"draft_tokens": 128, "path_width": 128}
    if name == "commit.lengths":
        wide |= {"table_width": 512, "simulated": 0}
        record = replace(contract.example.requests[0], pool_row=0)
    else:
        record = replace(contract.example.requests[0], track_slot=-1)
    case = replace(contract.example, **wide, requests=(record,) * MAX_RECORDS)
    with pytest.raises(InvalidCase, match="too many"):
        contract.domain(case)


@pytest.mark.parametrize("change", [{"gap": 2**31 - 4097, "layers": 3}, {"rows_before": 2**16, "steps": 4096}])
def test_a_pool_or_scratch_beyond_any_memory_is_refused(change):
    contract = contracts.get("commit.state_scatter")
    case = replace(contract.example, state_entry=(1, 16, 16), state_dtype="float32", **change)
    with pytest.raises(InvalidCase, match="laid out"):
        contract.domain(case)


def test_a_file_with_such_a_value_is_refused_by_name():
    contract = contracts.get("commit.checkpoint_steps")
    frozen = corpus.make(contract.name, contract.example, slug="a-case", reason="a reason in words")
    plain = json.loads(to_text(frozen))
    plain["case"]["grid"] = 2**64
    with pytest.raises(CorpusError, match="x.json: .*grid"):
        parse(json.dumps(plain).encode(), "x.json")
