"""Mutants of verify.target_distribution: one plain pipeline with replaceable stages."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from fuzz.mutants.mutant import Mutant
from oracle.verify.target_distribution import Request, TargetDistributionCase

Masses = dict[int, float]


def _softmax(logits: Masses, temperature: float) -> Masses:
    top = max(logits.values())
    weight = {t: math.exp((v - top) / temperature) for t, v in logits.items()}
    return _normal(dict(sorted(weight.items(), key=lambda item: (-item[1], item[0]))))


def _normal(masses: Masses) -> Masses:
    total = sum(masses.values())
    return {t: m / total for t, m in masses.items()}


def _first(masses: Masses, count: int) -> Masses:
    return dict(list(masses.items())[: max(count, 1)])


def _top_p(masses: Masses, limit: float, stays: Callable = lambda front, mass, limit: front < limit) -> Masses:
    """Falling masses; the first always stays."""
    if limit >= 1:
        return masses
    front, count = 0.0, 0
    for place, mass in enumerate(masses.values()):
        if place and not stays(front, mass, limit):
            break
        front, count = front + mass, place + 1
    return _first(masses, count)


def _min_p(masses: Masses, limit: float) -> Masses:
    top = next(iter(masses.values()))
    return {t: m for t, m in masses.items() if m >= limit * top}


@dataclass(frozen=True)
class Stages:
    """Each default is right."""

    request: Callable = lambda case, i: case.requests[i]
    row: Callable = lambda request: request.row
    softmax: Callable = _softmax
    top_k: Callable = lambda masses, k: _normal(_first(masses, k))
    top_p: Callable = lambda masses, p: _normal(_top_p(masses, p))
    min_p: Callable = lambda masses, p: _normal(_min_p(masses, p))
    swapped: bool = False


def _observe(**changes: Any) -> Callable[[TargetDistributionCase], dict[str, Any]]:
    stages = replace(Stages(), **changes)

    def observe(case: TargetDistributionCase) -> dict[str, Any]:
        kept, mass = [], []
        for i, own in enumerate(case.requests):
            parameters: Request = stages.request(case, i)
            logits = {m.token: m.value for m in own.rows[stages.row(own)].masses}
            masses = stages.softmax(logits, parameters.temperature)
            cuts = [(stages.top_k, parameters.top_k), (stages.top_p, parameters.top_p)]
            for cut, limit in [*(cuts[::-1] if stages.swapped else cuts), (stages.min_p, parameters.min_p)]:
                masses = cut(masses, limit)
            kept.append(sorted(t for t, m in masses.items() if m > 0))
            mass.append(masses.get(own.token, 0.0))
        return {"kept": kept, "mass": mass}

    return observe


def _masked_as_zero(case: TargetDistributionCase) -> dict[str, Any] | None:
    """Masked tokens have the logit 0."""
    if case.vocabulary > 64:
        return None

    def softmax(logits: Masses, temperature: float) -> Masses:
        return _softmax({t: logits.get(t, 0.0) for t in range(case.vocabulary)}, temperature)

    return _observe(softmax=softmax)(case)


MUTANTS = (
    Mutant("temperature_ignored", "temperature", "the softmax is taken at temperature 1",
           _observe(softmax=lambda logits, t: _softmax(logits, 1.0))),
    Mutant("temperature_multiplies", "temperature", "logits are multiplied by the temperature",
           _observe(softmax=lambda logits, t: _softmax(logits, 1.0 / t))),
    Mutant("temperature_on_masses", "temperature", "the temperature divides the masses",
           _observe(softmax=lambda logits, t: {k: m / t for k, m in _softmax(logits, 1.0).items()})),
    Mutant("parameters_of_first", "wrong_row", "every request uses the parameters of the first",
           _observe(request=lambda case, i: case.requests[0])),
    Mutant("parameters_of_last", "wrong_row", "every request uses the parameters of the last",
           _observe(request=lambda case, i: case.requests[-1])),
    Mutant("first_row_only", "wrong_row", "all rows of a request get the distribution of the first",
           _observe(row=lambda request: 0)),
    Mutant("top_k_ignored", "filter", "top-k is ignored", _observe(top_k=lambda masses, k: masses)),
    Mutant("top_k_one_more", "off_by_one", "top-k keeps one token more",
           _observe(top_k=lambda masses, k: _normal(_first(masses, k + 1)))),
    Mutant("top_k_one_less", "off_by_one", "top-k keeps one token less",
           _observe(top_k=lambda masses, k: _normal(_first(masses, k - 1)))),
    Mutant("top_k_of_the_least", "order", "top-k keeps the least likely tokens",
           _observe(top_k=lambda masses, k: _normal(dict(list(masses.items())[-k:])))),
    Mutant("top_p_ignored", "filter", "top-p is ignored", _observe(top_p=lambda masses, p: masses)),
    Mutant("top_p_one_less", "off_by_one", "the token that reaches top_p goes too",
           _observe(top_p=lambda masses, p: _normal(_top_p(masses, p, lambda front, mass, p: front + mass <= p)))),
    Mutant("top_p_one_more", "off_by_one", "one token behind the one that reaches top_p stays",
           _observe(top_p=lambda masses, p: _normal(
               masses if p >= 1 else _first(masses, len(_top_p(masses, p)) + 1)))),
    Mutant("top_p_as_min", "filter", "top_p is taken for a least mass",
           _observe(top_p=lambda masses, p: _normal(_min_p(masses, 1 - p)))),
    Mutant("top_p_before_top_k", "order", "top-p is applied before top-k", _observe(swapped=True)),
    Mutant("top_p_not_normalised", "normalisation", "the masses are not normalised after top-p",
           _observe(top_p=_top_p, min_p=lambda masses, p: _min_p(masses, p))),
    Mutant("min_p_ignored", "filter", "min-p is ignored", _observe(min_p=lambda masses, p: masses)),
    Mutant("min_p_absolute", "filter", "min-p is compared with the mass itself",
           _observe(min_p=lambda masses, p: _normal(
               {t: m for t, m in masses.items() if m >= p} or _first(masses, 1)))),
    Mutant("masked_as_zero", "mask", "masked tokens have the logit 0", _masked_as_zero),
)  # fmt: skip
