"""Numbers with running error bounds: a correct float32 computation stays inside, one
that is a little worse does not, and the judgement says where and by how much."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oracle import judgement
from oracle.commit.checkpoint_steps import CONTRACT
from oracle.contract import Field
from oracle.legal import Within, alike, to_plain
from oracle.recurrence.approximate import ACCURACY, WORST, Approximate, U, dot, exact
from oracle.recurrence.formats import FORMATS, rounded, unit_roundoff
from oracle.recurrence.values import draw

SIZE = 20_000
SPREAD = draw(1, "spread", (SIZE,), "float32", -8.0, 8.0)
POSITIVE = draw(2, "positive", (SIZE,), "float32", 0.125, 8.0)


def single(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float32)


def share(bounded: Approximate, computed: np.ndarray) -> float:
    assert computed.dtype == np.float32
    return bounded.legal().error_of_bound(computed)


@pytest.mark.parametrize(
    ("name", "bounded", "computed"),
    [
        ("add", lambda x, y: x + y, lambda x, y: x + y),
        ("subtract", lambda x, y: 1.0 - x * y, lambda x, y: np.float32(1) - x * y),
        ("multiply", lambda x, y: x * y, lambda x, y: x * y),
        ("divide", lambda x, y: x / y, lambda x, y: x / y),
        ("exp", lambda x, y: x.exp(), lambda x, y: np.exp(x)),
        ("log", lambda x, y: y.log(), lambda x, y: np.log(y)),
        ("sqrt", lambda x, y: y.sqrt(), lambda x, y: np.sqrt(y)),
        ("rsqrt", lambda x, y: y.rsqrt(), lambda x, y: np.float32(1) / np.sqrt(y)),
        ("sigmoid", lambda x, y: x.sigmoid(), lambda x, y: 1 / (1 + np.exp(-x))),
        ("silu", lambda x, y: x.silu(), lambda x, y: x / (1 + np.exp(-x))),
        ("softplus", lambda x, y: x.softplus(), lambda x, y: np.log(1 + np.exp(x))),
        ("chain", lambda x, y: ((x * y).exp() + y).log() * x, lambda x, y: np.log(np.exp(x * y) + y) * x),
    ],
)
def test_a_float32_computation_stays_within_its_bound_and_comes_near_it(name, bounded, computed):
    """And a result with 1.5 times the error that it has room for does not pass."""
    made = bounded(exact(SPREAD / 4), exact(POSITIVE))
    with np.errstate(over="ignore"):
        seen = single(computed(single(SPREAD / 4), single(POSITIVE)))
    assert 1e-3 < share(made, seen) <= 1
    worse = made.value.copy()
    worse[7] += 1.5 * made.error[7]
    assert made.legal().admits(made.value) and not made.legal().admits(worse)


def orders(products: np.ndarray) -> list[np.ndarray]:
    """One sum in several orders: pairwise, one by one, from behind, by halves."""
    halves = products.copy()
    while halves.shape[1] > 1:
        middle = halves.shape[1] // 2
        halves = halves[:, :middle] + halves[:, middle:]
    forward = np.cumsum(products, axis=1, dtype=np.float32)[:, -1]
    backward = np.cumsum(products[:, ::-1], axis=1, dtype=np.float32)[:, -1]
    return [products.sum(axis=1, dtype=np.float32), forward, backward, halves[:, 0]]


def test_a_sum_of_products_may_be_taken_in_any_order():
    a, b = draw(5, "a", (500, 64), "float32"), draw(6, "b", (500, 64), "float32")
    for seen in orders(single(a) * single(b)):
        assert 1e-3 < share(dot(a, b), seen) <= 1


def test_a_sum_one_by_one_may_lose_a_rounding_a_term():
    """Every step rounds up by just under half a unit: the worst there is, and it must fit."""
    terms = np.array([[1.0, *[1.01 * U] * 63]])
    seen = np.cumsum(single(terms), axis=1, dtype=np.float32)[:, -1]
    assert 0.9 < share(exact(terms).sum(), seen) <= 1


def test_a_tensor_core_may_cut_its_operands_and_only_where_it_is_said():
    a, b = draw(5, "a", (500, 16), "float32"), draw(6, "b", (500, 16), "float32")
    cut = single((rounded(a, "tfloat32") * rounded(b, "tfloat32")).sum(axis=1))
    assert share(dot(a, b, inputs="tfloat32"), cut) <= 1 < share(dot(a, b), cut)


def test_what_is_exact_in_every_order_has_one_answer_all_the_same():
    """Quarters: the bound is there, and every order hits the exact value."""
    a, b = draw(5, "a", (500, 16), "float32", grain=0.25), draw(6, "b", (500, 16), "float32", grain=0.25)
    for seen in orders(single(a) * single(b)):
        assert (seen == dot(a, b).value).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_storing_adds_one_rounding_of_the_stored_type(dtype):
    made = (exact(SPREAD) * POSITIVE).stored(dtype)
    seen = single(rounded(single(SPREAD) * single(POSITIVE), dtype).astype(np.float64))
    assert 0.5 < share(made, seen) <= 1
    assert not exact(SPREAD[:9]).stored("float32").error.any()
    assert not exact(np.array([0.5, -2.0, 0.0])).stored(dtype).error.any()


def test_the_bound_takes_the_worst_device():
    assert all(WORST[name] == max(row[name] for row in ACCURACY.values()) * U for name in WORST)
    assert {len(row) for row in ACCURACY.values()} == {len(WORST)}


def test_rounding_is_to_nearest_even_in_every_format():
    values = draw(9, "v", (SIZE,), "float32", -70.0, 70.0) * 2.0 ** draw(9, "e", (SIZE,), "float32", -40, 9, grain=1.0)
    with np.errstate(over="ignore"):
        assert (rounded(values, "float32") == values.astype(np.float32)).all()
        assert (rounded(values, "float16") == values.astype(np.float16)).all()
    assert rounded(np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8]), "bfloat16").tolist() == [1.0, 1 + 2.0**-6]
    assert np.isnan(rounded(np.array([np.nan]), "bfloat16")[0])
    for dtype, form in FORMATS.items():
        assert rounded(np.array([form.largest]), dtype)[0] == form.largest
        near = rounded(np.array([1 + unit_roundoff(dtype) * 0.99]), dtype)[0]
        assert near == (1.0 if dtype != "float64" else 1 + unit_roundoff(dtype) * 0.99)
    assert rounded(np.array([65520.0, -65520.0]), "float16").tolist() == [np.inf, -np.inf]


def test_numbers_from_seeds_are_the_same_for_ever():
    """Frozen cases hold seeds: a change here would change what they ask."""
    assert draw(0, "q", (6,), "float32", grain=0.25).tolist() == [-0.75, 0.5, -0.5, -0.75, 1.0, -0.25]
    assert draw(3, "q", (4,), "bfloat16").tolist() == [0.302734375, -0.322265625, 0.98046875, 0.208984375]
    assert (draw(3, "q", (2, 2), "float32").ravel() == draw(3, "q", (4,), "float32")).all()
    assert (draw(3, "q", (9,), "float32") != draw(3, "k", (9,), "float32")).any()
    spread = draw(11, "u", (SIZE,), "float32")
    assert abs(spread.mean()) < 0.02 and spread.min() < -0.999 and spread.max() > 0.999


NUMBERS = replace(
    CONTRACT, fields=(Field("output", "request", "numbers"),), kind=lambda f, e, o: "wrong" if o == o else "nan"
)
LEGAL = Within(np.array([[1.0, 2.0], [3.0, 0.0]]), np.array([[0.1, 0.1], [0.1, 0.0]]))


def judged(*seen):
    return judgement.judge(NUMBERS, {"output": [LEGAL] * len(seen)}, {"output": [np.array(s) for s in seen]})


def test_the_judgement_names_request_and_cell_and_the_share_of_the_bound():
    assert judged([[1.05, 2.0], [3.0, 0.0]]).error_of_bound == pytest.approx(0.5)
    wrong = judged([[1.0, 2.0], [3.0, 0.0]], [[1.0, 2.0], [3.2, 0.0]])
    assert (wrong.where, wrong.kind, wrong.illegal) == ((1, 1, 0), "wrong", 1)
    assert wrong.error_of_bound == pytest.approx(2.0)
    assert wrong.expected.low == pytest.approx(2.9) and wrong.observed == pytest.approx(3.2)


@pytest.mark.parametrize(
    ("seen", "kind"),
    [([[1.0, np.nan], [3.0, 0.0]], "nan"), ([[1.0, 2.0], [3.0, 1e-30]], "wrong"), ([[1.0, 2.0]], "wrong_shape")],
)
def test_nan_a_touched_exact_cell_and_a_wrong_shape_are_illegal(seen, kind):
    assert judged(seen).kind == kind


@pytest.mark.parametrize("dtype", [np.complex128, "U8", "M8[s]"])
def test_what_is_no_real_number_is_illegal(dtype):
    assert LEGAL.admits(np.array([[1, 2], [3, 0]]))
    assert not LEGAL.admits(np.array([[1, 2], [3, 0]]).astype(dtype))


def test_a_padded_array_is_judged_by_its_leading_part():
    assert judged([[1.0, 2.0, 77.0], [3.0, 0.0, 77.0], [9.0, 9.0, 9.0]]).agrees


def test_an_infinite_bound_asks_for_nothing():
    free = Within(np.zeros(2), np.array([np.inf, 0.0]))
    assert free.admits(np.array([np.nan, 0.0])) and not free.admits(np.array([0.0, np.nan]))
    assert Within(np.array([np.inf]), np.array([0.0])).admits(np.array([np.inf]))


@pytest.mark.parametrize("error", [np.array([-1.0, 0.0]), np.array([np.nan, 0.0]), np.zeros(3)])
def test_a_bound_that_is_none_is_refused(error):
    """A negative one would admit everything."""
    with pytest.raises(ValueError, match="bound"):
        Within(np.zeros(2), error)


def test_a_digest_is_small_and_does_not_depend_on_the_last_bits():
    made = (exact(SPREAD) * POSITIVE).legal()
    noisy = Within(made.value * (1 + 2.0**-51), made.error * (1 - 2.0**-51))
    assert to_plain(made) == to_plain(noisy) and len(str(to_plain(made))) < 400
    free, other = (Within(np.array([v, 2.0]), np.array([np.inf, 0.0])) for v in (1.0, 7.0))
    assert to_plain(free) == to_plain(other) and to_plain(free)["within"]["first"] == ["anything", 2.0]
    assert alike(made, noisy) and alike([made], [noisy])
    assert not alike(made, Within(made.value + 1e-5 * made.error, made.error))
