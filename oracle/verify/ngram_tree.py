"""verify.ngram_tree: what a tree of drafts from seen text must satisfy.

Definition. A corpus holds token sequences. A request asks with its last tokens, the
``context``, and gets N nodes: tokens and a mask. Which continuations are proposed, and
in which order, is the engine's choice; a verify step is only right when

* node 0 is the last token of the context (``root_token``),
* the mask is that of a tree whose nodes come after their parents: a row is its parent's
  row and the node itself. ``broken_rows`` counts the others, and must be 0,
* the children of a node differ in their tokens, else one is never looked at
  (``twins`` is 0),
* every draft was seen: the last token of the context followed by the path to the node
  stands somewhere in one sequence, at most ``depth`` tokens long. ``unfounded``
  counts the nodes for which it does not,
* something is drafted when something follows the last token anywhere, and no more than
  follows (``drafts`` counts founded nodes, twins once). When the corpus may have
  forgotten, because ``capacity`` is smaller than what was put in, nothing is owed,
* asked again the corpus answers the same (``unsteady`` counts cells that differ).

Nodes that were not needed are filled up with token 0 as children of the root; they are
no twins and need not be founded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oracle.contract import FUNCTIONAL, INT32_MAX, Contract, Field, Outcome, require, require_size
from oracle.legal import Between
from oracle.trace import Trace
from oracle.verify.ngram_paths import BEHAVIOURS, continuations, inserted, note

ORDERS = ("recency", "frequency")
MAX_NODES = 64
MAX_TEXT = 2**12  # tokens of a corpus or of a context


@dataclass(frozen=True)
class Text:
    """One sequence of the corpus."""

    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Request:
    """The last tokens of a request, the current one last."""

    context: tuple[int, ...]


@dataclass(frozen=True)
class NgramTreeCase:
    """A corpus, in the order in which it was filled, and a batch of questions."""

    order: str
    draft_tokens: int
    depth: int
    breadth: int
    capacity: int
    corpus: tuple[Text, ...]
    requests: tuple[Request, ...]


def domain(case: NgramTreeCase) -> str:
    """Always ``functional``; raises InvalidCase outside the domain."""
    require(case.order in ORDERS, f"order: must be one of {', '.join(ORDERS)}")
    require(1 <= case.draft_tokens <= MAX_NODES, f"draft_tokens: must be 1 to {MAX_NODES}")
    require(2 <= case.depth <= MAX_NODES, f"depth: must be 2 to {MAX_NODES}")
    require(1 <= case.breadth <= MAX_NODES, f"breadth: must be 1 to {MAX_NODES}")
    require(case.depth + 2 <= case.capacity <= 2**20, "capacity: must be depth + 2 to 2^20")
    require(sum(len(t.tokens) for t in case.corpus) <= MAX_TEXT, f"corpus: at most {MAX_TEXT} tokens")
    require(bool(case.requests), "requests: must not be empty")
    require_size(case.requests, "requests", MAX_NODES * MAX_NODES)
    for i, text in enumerate(case.corpus):
        require(all(0 <= t <= INT32_MAX for t in text.tokens), f"corpus[{i}].tokens: must be 0 to 2^31 - 1")
    for i, r in enumerate(case.requests):
        require(1 <= len(r.context) <= case.depth, f"requests[{i}].context: must hold 1 to depth tokens")
        require(all(0 <= t <= INT32_MAX for t in r.context), f"requests[{i}].context: must be 0 to 2^31 - 1")
    return FUNCTIONAL


def _outcome(case: NgramTreeCase, follow: list[int]) -> Outcome:
    forgets = inserted(case) >= case.capacity
    drafts: list[Any] = []
    for count in follow:
        most = min(count, case.draft_tokens - 1)
        drafts.append(Between(0 if forgets else 1, most) if most else 0)
    zeros = [0] * len(case.requests)
    return {
        "root_token": [r.context[-1] for r in case.requests],
        "broken_rows": zeros,
        "twins": zeros,
        "unfounded": zeros,
        "drafts": drafts,
        "unsteady": zeros,
    }


def reference(case: NgramTreeCase, trace: Trace) -> Outcome:
    """Look up everything that follows the last token."""
    follow = []
    for i, r in enumerate(case.requests):
        paths = continuations(case, r.context[-1])
        trace.step("continuations", i, token=r.context[-1], next=sorted({p[0] for p in paths}), paths=len(paths))
        follow.append(len(paths))
        note(case, r, paths, trace)
    outcome = _outcome(case, follow)
    for i in range(len(follow)):
        for field in FIELDS:
            trace.step(field.meaning, i, field.name, value=outcome[field.name][i])
    if len({r.context for r in case.requests}) < len(case.requests):
        trace.behaviour("repeated_context")
    return outcome


def second(case: NgramTreeCase) -> Outcome:
    """By a tree of dictionaries over all windows, and its size below the last token."""
    root: dict[int, Any] = {}
    for text in case.corpus:
        for at in range(len(text.tokens)):
            node = root
            for token in text.tokens[at : at + case.depth]:
                node = node.setdefault(token, {})

    def size(node: dict[int, Any]) -> int:
        return sum(1 + size(child) for child in node.values())

    return _outcome(case, [size(root.get(r.context[-1], {})) for r in case.requests])


def columns(case: NgramTreeCase) -> dict[str, Any]:
    """Texts and contexts as lists, because they are ragged; the scalars."""
    return {
        "order": case.order,
        "draft_tokens": case.draft_tokens,
        "depth": case.depth,
        "breadth": case.breadth,
        "capacity": case.capacity,
        "corpus": [list(t.tokens) for t in case.corpus],
        "context": [list(r.context) for r in case.requests],
    }


def kind(field: str, expected: Any, observed: Any) -> str:
    """wrong_token, nothing_drafted, too_many, or the field itself."""
    if field == "root_token":
        return "wrong_token"
    return ("nothing_drafted" if observed == 0 else "too_many") if field == "drafts" else field


FIELDS = (
    Field("root_token", "request", "the root is the last token of the context"),
    Field("broken_rows", "request", "mask rows that are not the parent's row and the node itself"),
    Field("twins", "request", "children of one node with the same token"),
    Field("unfounded", "request", "drafts that were never seen behind the last token"),
    Field("drafts", "request", "drafted nodes"),
    Field("unsteady", "request", "cells that differ when the same is asked again"),
)

CONTRACT = Contract(
    name="verify.ngram_tree",
    version=1,
    case_type=NgramTreeCase,
    reference=reference,
    second=second,
    domain=domain,
    columns=columns,
    kind=kind,
    fields=FIELDS,
    behaviours=BEHAVIOURS,
    example=NgramTreeCase("recency", 4, 4, 2, 1000, (Text((1, 2, 3, 4)),), (Request((1, 2)),)),
)
