"""A draft tree with a target distribution and a coin at every node.

Node 0 is the root: the current token, emitted earlier. The other nodes hold draft
tokens and hang on each other by ``next_child`` (the first child) and
``next_sibling``; -1 ends a list. Links make a tree, so every walk ends. A node that
no link from the root reaches takes no part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from oracle.contract import DEFENSIVE, FUNCTIONAL, INT32_MAX, MAX_CELLS, require, require_size
from oracle.verify.links import NONE, require_tree
from oracle.verify.rows import Mass, Row, dense, exact, is_distribution, require_float32, require_row, value

MAX_NODES = 64
LAST_COIN = 1.0 - 2.0**-24


@dataclass(frozen=True)
class Node:
    """One draft token (or the root), the coin that decides among its children, and
    the target's distribution of the token after it."""

    token: int
    next_child: int
    next_sibling: int
    coin: float
    row: Row


@dataclass(frozen=True)
class Request:
    """A tree, and the coin of the final draw."""

    nodes: tuple[Node, ...]
    final_coin: float


@dataclass(frozen=True)
class TreeSamplingCase:
    """One sampling verify of a batch of trees with the same number of nodes. A path
    holds at most ``width`` nodes, the root included."""

    vocabulary: int
    width: int
    threshold_single: float
    threshold_acc: float
    requests: tuple[Request, ...]


@lru_cache(maxsize=4096)
def masses_of(row: Row, vocabulary: int) -> dict[int, Fraction]:
    """Exact masses of the tokens that have any, in rising order. Not to be changed."""
    return exact(row, vocabulary)


def domain(case: TreeSamplingCase) -> str:
    """``defensive`` when a row is no distribution or a draft token outside the
    vocabulary, else ``functional``; raises InvalidCase outside the domain."""
    require(2 <= case.vocabulary <= INT32_MAX, "vocabulary: must be 2 to 2^31 - 1")
    require(1 <= case.width <= MAX_NODES, f"width: must be 1 to {MAX_NODES}")
    require_float32(case.threshold_single, "threshold_single")
    require_float32(case.threshold_acc, "threshold_acc")
    require(0.0 <= case.threshold_single <= 1.0, "threshold_single: must be 0 to 1")
    require(2.0**-24 <= case.threshold_acc <= 1.0, "threshold_acc: must be 2^-24 to 1")
    require(bool(case.requests), "requests: must not be empty")
    size = len(case.requests[0].nodes)
    require(1 <= size <= MAX_NODES, f"requests[0].nodes: must be 1 to {MAX_NODES} nodes")
    require_size(case.requests, "requests", size * case.vocabulary)
    require(size * case.vocabulary <= MAX_CELLS, "vocabulary: too large for this many nodes")
    for i, request in enumerate(case.requests):
        where = f"requests[{i}]"
        require(len(request.nodes) == size, f"{where}.nodes: all trees of a batch have one number of nodes")
        _require_coin(request.final_coin, f"{where}.final_coin")
        for n, node in enumerate(request.nodes):
            _require_coin(node.coin, f"{where}.nodes[{n}].coin")
            require_row(node.row, case.vocabulary, f"{where}.nodes[{n}].row")
            require(-INT32_MAX <= node.token <= INT32_MAX, f"{where}.nodes[{n}].token: must be an int32")
            for name in ("next_child", "next_sibling"):
                require(NONE <= getattr(node, name) < size, f"{where}.nodes[{n}].{name}: must be -1 or a node")
        require_tree(request.nodes, f"{where}.nodes")
    return DEFENSIVE if any(hostile(r, case.vocabulary) for r in case.requests) else FUNCTIONAL


def _require_coin(coin: float, where: str) -> None:
    require_float32(coin, where)
    require(0.0 <= coin <= LAST_COIN, f"{where}: must be 0 to 1 - 2^-24")


def hostile(request: Request, vocabulary: int) -> str | None:
    """What is hostile about a request, ``None`` for a sound one.

    A row is a distribution when it is finite, not negative, and sums to 1 within
    what float32 arithmetic leaves of that: n tokens with mass, each rounded once
    by its division and once in the sum, give n ULP of 1.
    """
    for n, node in enumerate(request.nodes):
        if not 0 <= node.token < vocabulary:
            return f"the token of node {n} is outside the vocabulary"
        fault = _row_fault(node.row, vocabulary)
        if fault:
            return f"the row of node {n} {fault}"
    return None


@lru_cache(maxsize=4096)
def _row_fault(row: Row, vocabulary: int) -> str | None:
    if not is_distribution(row):
        return f"holds {_worst(row)}"
    masses = masses_of(row, vocabulary)
    if not masses:
        return "has no mass"
    return None if abs(sum(masses.values()) - 1) <= Fraction(len(masses), 2**23) else "does not sum to 1"


def _worst(row: Row) -> str:
    values = [row.rest, *(m.value for m in row.masses)]
    if any(math.isnan(v) for v in values):
        return "NaN"
    return "an infinity" if any(math.isinf(v) for v in values) else "a negative value"


def has_mass(row: Row, token: int) -> bool:
    """True for a value above 0; NaN is none."""
    return value(row, token) > 0.0


def columns(case: TreeSamplingCase) -> dict[str, Any]:
    """``token``, ``next_child`` and ``next_sibling`` int64 [B, N], ``coin`` float32
    [B, N], ``final_coin`` float32 [B], ``target`` float32 [B, N, V], and the
    scalars of the case."""
    nodes = [r.nodes for r in case.requests]

    def table(name: str, dtype: Any) -> np.ndarray:
        return np.array([[getattr(n, name) for n in row] for row in nodes], dtype=dtype)

    return {
        "vocabulary": case.vocabulary,
        "width": case.width,
        "threshold_single": case.threshold_single,
        "threshold_acc": case.threshold_acc,
        "token": table("token", np.int64),
        "next_child": table("next_child", np.int64),
        "next_sibling": table("next_sibling", np.int64),
        "coin": table("coin", np.float32),
        "final_coin": np.array([r.final_coin for r in case.requests], dtype=np.float32),
        "target": np.array([[dense(n.row, case.vocabulary) for n in row] for row in nodes], dtype=np.float32),
    }


def padding(case: TreeSamplingCase) -> Request:
    """A request without drafts whose target is sure of token 0."""
    node = Node(token=0, next_child=NONE, next_sibling=NONE, coin=0.5, row=Row((Mass(0, 1.0),)))
    return Request((node,) * len(case.requests[0].nodes), 0.5)
