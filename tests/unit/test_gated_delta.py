"""The delta rules: what the walk must be, whichever contract asks, and what its bounds are worth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fuzz.presentation import permutation
from fuzz.strategies.registry import structure_of
from fuzz.strategies.source import RandomSource
from oracle import contracts
from oracle.contract import DEFENSIVE, FUNCTIONAL, InvalidCase
from oracle.judgement import judge
from oracle.recurrence import delta_walk
from oracle.recurrence.approximate import exact
from oracle.recurrence.delta_case import NONE, Request
from oracle.recurrence.delta_defensive import AnyOf
from oracle.recurrence.delta_values import columns, parents_of, slot_state, tokens, weights
from oracle.recurrence.delta_walk import Rules, walk
from oracle.recurrence.formats import rounded
from oracle.recurrence.words import POISON

NAMES = ("recurrence.gated_delta", "recurrence.kda")
EXAMPLE = contracts.get(NAMES[0]).example


def draws(name: str, count: int, **wanted):
    """Random cases with the wanted fields."""
    structure = structure_of(name)
    found = 0
    for i in range(100 * count):
        case = structure(RandomSource(f"unit:{i}"))
        if all(getattr(case, field) == value for field, value in wanted.items()):
            yield case
            found += 1
            if found == count:
                return
    raise AssertionError(f"too few cases with {wanted}")


def legal(case):
    name = NAMES[case.per_channel]
    contracts.get(name).domain(case)
    return contracts.get(name).run(case)[0]


def request(seed=1, length=1, slot=NONE, row=NONE, parents=(), table=(), accepted=0) -> Request:
    return Request(seed, length, slot, row, parents, table, accepted)


def test_one_token_by_hand():
    """S = (1, 2), k = (1, 0), v = 3, beta = 1/2, decay 1/2: S fades to (1/2, 1), k reads 1/2,
    so half of 5/2 is written at k: (7/4, 1). q = (1, 1) reads 11/4."""
    after = Rules().advance(exact([[1.0], [2.0]]), exact([1.0, 0.0]), exact([3.0]), exact([0.5, 0.5]), exact([0.5]))
    assert after.value.tolist() == [[1.75], [1.0]]
    assert Rules().output(after, exact([1.0, 1.0])).value.tolist() == [2.75]


def test_a_case_by_hand():
    """Numbers that are multiples of 1/4, gates given: the first output of the example, read off its columns."""
    x = columns(EXAMPLE)
    state = x["pool"][1, 0] * np.exp(x["g"][0, 0])
    state = state + np.outer(x["k"][0, 0], x["beta"][0, 0] * (x["v"][0, 0] - x["k"][0, 0] @ state))
    assert np.allclose(legal(EXAMPLE)["output"][0].value[0, 0], x["q"][0, 0] @ state / 2, rtol=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_a_path_of_a_tree_is_the_chain_of_its_tokens(name, monkeypatch):
    for case in draws(name, 12, operation="verify"):
        if not case.tree:
            continue
        tree = walk(case)
        for i, r in enumerate(case.requests):
            for last in range(r.length):
                path = [last]
                while parents_of(r)[path[0]] != NONE:
                    path.insert(0, parents_of(r)[path[0]])
                on_path = {n: v[path] for n, v in tokens(case, r).items()}
                monkeypatch.setattr(delta_walk, "tokens", lambda *_, on_path=on_path: on_path)
                order = tuple(range(-1, len(path) - 1))
                chain = walk(replace(case, requests=(replace(r, length=len(path), parents=order),)))
                assert (chain.states.value[0] == tree.states.value[i, path]).all()
                assert (chain.output.value[0] == tree.output.value[i, path]).all()
                monkeypatch.undo()


@pytest.mark.parametrize("name", NAMES)
def test_verified_states_are_those_of_decoding_one_by_one(name):
    """Committing verify step j leaves what a prefill of j + 1 tokens leaves."""
    for case in draws(name, 10, operation="verify"):
        chain = replace(case, requests=tuple(replace(r, parents=()) for r in case.requests if r.slot != NONE)[:1])
        if not chain.requests or not chain.requests[0].length:
            continue
        states = legal(chain)["states"][0].value
        (r,) = chain.requests
        for j in range(r.length):
            upto = replace(r, length=j + 1, row=NONE)
            advanced = legal(replace(chain, operation="prefill", rows=0, row_gap=0, steps=0, requests=(upto,)))
            assert (advanced["state"][0].value == states[j]).all()


@pytest.mark.parametrize("name", NAMES)
def test_two_calls_are_one_up_to_what_was_stored(name):
    for case in draws(name, 20, operation="prefill", fresh=False):
        whole = legal(replace(case, split=0))
        for split in range(1, 6):
            parts = legal(replace(case, split=split))
            for field in ("output", "state"):
                for one, two in zip(whole[field], parts[field], strict=True):
                    assert (one.value == two.value).all() and (one.error <= two.error).all()


@pytest.mark.parametrize("name", NAMES)
def test_neither_order_nor_neighbours_matter(name):
    for case in draws(name, 30):
        together, order = legal(case), permutation(len(case.requests), 3)
        mixed = legal(replace(case, requests=tuple(case.requests[i] for i in order)))
        for field in ("output", "states", "state"):
            for place, i in enumerate(order):
                assert (mixed[field][place].value == together[field][i].value).all()
        real = [i for i, r in enumerate(case.requests) if r.length]
        alone = legal(replace(case, requests=(case.requests[real[0]],)))
        if not case.tree or case.requests[real[0]].parents:
            assert (alone["output"][0].value == together["output"][real[0]].value).all()


def in_float32(case) -> dict[str, list[np.ndarray]]:
    """The same rule as a plain float32 program for one request after the other."""
    f = np.float32
    made = {n: w.astype(f) for n, w in weights(case).items()}
    out = {"output": [], "states": []}
    for r in case.requests:
        x = {n: v.astype(f) for n, v in tokens(case, r).items()}
        group = case.value_heads // case.key_heads
        slot = Rules().start_slot(case, r)
        kept = [np.zeros(case.entry, f) if slot == NONE else slot_state(case, slot).astype(f)]
        outputs, states = [], []
        for t, parent in enumerate(parents_of(r)):
            h = kept[parent + 1].copy() if case.tree else kept[-1].copy()
            o = np.zeros((case.value_heads, case.value_dim), f)
            for head in range(case.value_heads):
                q, k = x["q"][t, head // group], x["k"][t, head // group]
                if case.normalise:
                    q, k = (v / np.sqrt(f((v * v).sum(dtype=f)) + f(1e-6)) for v in (q, k))
                if case.gate == "given":
                    g, beta = x["g"][t, head], x["beta"][t, head]
                else:
                    a = x["a"][t, head] + made["dt_bias"][head]
                    g = _gate(case, a, made["A_log"][head])
                    beta = f(1) / (f(1) + np.exp(-x["b"][t, head]))
                    beta = f(rounded(beta, case.input_dtype)) if case.beta_rounded else beta
                h[head] *= np.exp(g)[:, None] if case.per_channel else np.exp(g)
                h[head] += np.outer(k, beta * (x["v"][t, head] - k @ h[head]))
                o[head] = (q * f(case.used_scale)) @ h[head]
            stored = rounded(h, case.state_dtype).astype(f)
            kept.append(stored if case.tree or t + 1 == case.split else h)
            outputs.append(rounded(o, case.input_dtype))
            states.append(stored)
        shape = (-1, case.value_heads, case.value_dim)
        out["output"].append(np.array(outputs).reshape(shape))
        out["states"].append(np.array(states, np.float64).reshape(-1, *case.entry))
    return out


def _gate(case, a, A_log):
    f = np.float32
    if case.gate == "bounded":
        return f(case.lower_bound) / (f(1) + np.exp(-(np.exp(A_log) * a)))
    with np.errstate(over="ignore"):
        return -np.exp(A_log) * np.where(a <= 20, np.log(f(1) + np.exp(a)), a)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("operation", ["prefill", "verify", "accepted"])
def test_float32_arithmetic_stays_within_the_bound_and_comes_near_it(name, operation):
    """A bound that no correct program comes near within a factor of 1000 would prove nothing."""
    worst = 0.0
    for case in draws(name, 60, operation=operation, state_dtype="float32", input_dtype="float32"):
        if contracts.get(name).domain(case) != FUNCTIONAL:
            continue
        outcome, seen = legal(case), in_float32(case)
        for field in ("output", "states") if operation != "prefill" else ("output",):
            for within, observed in zip(outcome[field], seen[field], strict=True):
                assert within.admits(observed), case
                worst = max(worst, within.error_of_bound(observed) or 0.0)
    assert worst > 1e-2


@pytest.mark.parametrize("name", NAMES)
def test_sixteen_bit_arithmetic_stays_within_the_bound(name):
    for case in draws(name, 40, operation="verify", state_dtype="bfloat16"):
        outcome, seen = legal(case), in_float32(case)
        for field in ("output", "states"):
            assert all(w.admits(o) for w, o in zip(outcome[field], seen[field], strict=True)), case


@pytest.mark.parametrize("name", NAMES)
def test_columns_are_representable_and_hold_every_request(name):
    for case in draws(name, 40):
        x = columns(case)
        assert x["start"][-1] == len(x["q"]) == len(x["v"])
        for field, dtype in (("q", "input_dtype"), ("v", "input_dtype"), ("pool", "state_dtype")):
            assert (rounded(x[field], getattr(case, dtype)) == x[field]).all()
        for i, r in enumerate(case.requests):
            mine = slice(x["start"][i], x["start"][i + 1])
            assert (x["k"][mine] == tokens(case, r)["k"]).all()


ACCEPTED = replace(EXAMPLE, operation="accepted", slots=8)
NOTHING = replace(
    ACCEPTED, requests=(request(1, 2, table=(1, 2, 3), accepted=2), request(2, 2, table=(4, 5, 6), accepted=0))
)


def observed_from(start: int | None, written: bool = True):
    """The second request as if it had started from ``start`` (``None``: from 0)."""

    class From(Rules):
        def start_slot(self, case, r):
            own = r is case.requests[1]
            return (NONE if start is None else start) if own else super().start_slot(case, r)

    legal_, walked = legal(NOTHING), walk(NOTHING, From())
    output, states = ([w.value.copy() for w in legal_[field]] for field in ("output", "states"))
    output[1], states[1] = walked.output.value[1], walked.states.value[1]
    if not written:
        output[1] = np.full_like(output[1], POISON)
        states[1] = np.array([slot_state(NOTHING, slot) for slot in (4, 5)])
    return {"outside": "untouched", "kept": 0, "output": output, "states": states}


def test_nothing_accepted_may_start_from_any_own_slot_or_from_none():
    contract = contracts.get(NAMES[0])
    assert contract.domain(NOTHING) == DEFENSIVE
    for start in (4, 5, 6, None):
        assert judge(contract, legal(NOTHING), observed_from(start)).agrees
    assert judge(contract, legal(NOTHING), observed_from(4, written=False)).agrees


def test_nothing_accepted_may_not_start_from_another_requests_slot():
    contract = contracts.get(NAMES[0])
    for start in (1, 2, 3, 7):
        verdict = judge(contract, legal(NOTHING), observed_from(start))
        assert (verdict.field, verdict.kind, verdict.where[0]) == ("output", "wrong_value", 1)


def test_any_of_says_that_there_are_several():
    choices = legal(NOTHING)["output"][1]
    assert isinstance(choices, AnyOf) and choices.describe().endswith("or one of 5 other outcomes")
    assert len(choices.digest()["or"]) == 5
    assert choices.excess(np.zeros(3)) is None


VERIFY = replace(EXAMPLE, operation="verify", rows=2, steps=4, requests=(request(1, 3, 1, 0),))


@pytest.mark.parametrize(
    ("base", "changes", "words"),
    [
        (EXAMPLE, {"operation": "train"}, "operation: must be one of"),
        (EXAMPLE, {"gate": "bounded"}, "gate: must be one of given, softplus"),
        (EXAMPLE, {"key_heads": 2}, "value_heads: must be a multiple"),
        (EXAMPLE, {"value_dim": 257}, "value_dim: must be 1 to 256"),
        (EXAMPLE, {"scale": 0.0}, "scale:"),
        (EXAMPLE, {"grain": 0.1}, "grain: must be 0 or 0.25"),
        (EXAMPLE, {"split": 1, "fresh": True}, "split: the second call"),
        (EXAMPLE, {"beta_rounded": True}, "beta_rounded: only where beta is computed"),
        (EXAMPLE, {"rows": 1}, "rows, row_gap, steps: only verify"),
        (EXAMPLE, {"gap": 2**30, "value_heads": 64}, "gap: at most"),
        (EXAMPLE, {"slots": 1, "gap": 5, "requests": (request(1, 1, 0),)}, "gap: needs at least two slots"),
        (EXAMPLE, {"requests": ()}, "requests: need 1 token"),
        (EXAMPLE, {"requests": (request(1, 0, 1),)}, "requests: need 1 token"),
        (EXAMPLE, {"requests": (request(1, 1),) * 1025}, "requests: must be at most 1024"),
        (EXAMPLE, {"requests": (request(1, 65, 1),)}, "requests[0].length: must be 0 to 64"),
        (EXAMPLE, {"requests": (request(1, 1, 2),)}, "requests[0].slot: must be -1 to slots - 1"),
        (EXAMPLE, {"requests": (request(1, 1, 1), request(2, 1, 1))}, "requests: two of them write one slot"),
        (EXAMPLE, {"requests": (request(-1, 1, 1),)}, "requests[0].seed"),
        (EXAMPLE, {"requests": (request(1, 1, 1, row=0),)}, "requests[0].row"),
        (EXAMPLE, {"operation": "decode"}, "requests[0].length: must be 1 to 1"),
        (VERIFY, {"steps": 2}, "requests[0].length: must be at most steps"),
        (VERIFY, {"requests": (request(1, 3, 1),)}, "requests[0].row: only a null row has none"),
        (VERIFY, {"requests": (request(1, 2, 1, 0, (0, 0)),)}, "requests[0].parents: the first token has -1"),
        (VERIFY, {"requests": (request(1, 2, 1, 0, (-1, 1)),)}, "requests[0].parents: must be smaller"),
        (VERIFY, {"requests": (request(1, 2, 1, 0, (-1,)),)}, "requests[0].parents: one for each token"),
        (VERIFY, {"requests": (request(1, 1, 0, 0), request(1, 1, 1, 0))}, "requests.row: two requests"),
        (VERIFY, {"row_gap": 2**27}, "row_gap: at most"),
        (ACCEPTED, {"requests": (request(1, 1, 1, table=(1,), accepted=1),)}, "requests[0].slot: its slots"),
        (ACCEPTED, {"requests": (request(1, 1),)}, "requests[0].table: must have 1 to 64 slots"),
        (ACCEPTED, {"requests": (request(1, 2, table=(1,), accepted=1),)}, "requests[0].table: must have a slot"),
        (ACCEPTED, {"requests": (request(1, 1, table=(1,), accepted=2),)}, "requests[0].accepted: must be 0 to"),
        (ACCEPTED, {"requests": (request(1, 1, table=(-1, 1), accepted=1),)}, "requests[0].table: the accepted step"),
        (ACCEPTED, {"requests": (request(1, 1, table=(1, 1), accepted=1),)}, "requests: two of them write one slot"),
        (ACCEPTED, {"requests": (request(1, 1, table=(9,), accepted=1),)}, "requests[0].table: slots must be"),
    ],
)
def test_what_is_no_case_is_refused_by_name(base, changes, words):
    contract = contracts.get(NAMES[0])
    assert contract.domain(base if base is not ACCEPTED else NOTHING) in (FUNCTIONAL, DEFENSIVE)
    with pytest.raises(InvalidCase) as error:
        contract.domain(replace(base, **changes))
    assert words in str(error.value)


def test_a_wrong_value_in_words():
    say = contracts.get(NAMES[0]).say
    assert say(EXAMPLE, "kept", (), 3) == "3 cells of inputs or of other slots changed; they are only read"
    assert say(EXAMPLE, "outside", (), "a pool: 4 bytes") == "outside the buffers: a pool: 4 bytes"
    value = float(legal(EXAMPLE)["state"][0].value[0, 2, 1])
    text = say(EXAMPLE, "state", (0, 0, 2, 1), value + 1.0)
    assert text.startswith("state of request 0: value head 0, key 2, value 1 is ") and "times its bound" in text
    assert "was never written" in say(EXAMPLE, "output", (0, 1, 0, 3), POISON)
    assert say(EXAMPLE, "output", (0,), np.zeros((1, 1))) == ("request 0: output has the shape (1, 1), not (2, 1, 4)")
