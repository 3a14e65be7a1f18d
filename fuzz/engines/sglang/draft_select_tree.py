"""EAGLE's tree of several branches: every draft step's selection, then the cut."""

from __future__ import annotations

from typing import Any

from fuzz.adapter import adapter
from fuzz.engines.sglang.draft_select_buffers import CONTRACT, form
from fuzz.worker.layout import FILLER

OBSERVES = ("values", "any_tokens", "picks", "next_inputs", "hidden_rows", "selected", "orphans")


def tree(case: Any) -> str | None:
    return form("tree", case)


def _step_inputs(engine: Any, case: Any, step: int) -> tuple[Any, Any]:
    """Masses and tokens as the model's top-k gives them for the rows of a step."""
    k = case.width
    if step == 0:
        masses, tokens = case.first, case.first_candidates
    else:
        masses, tokens = case.scores[:, step - 1].reshape(-1, k), case.candidates[:, step - 1].reshape(-1, k)
    return engine.tensor(masses, "float32", contiguous=True), engine.tensor(tokens, "int64", contiguous=True)


def _grow(engine: Any, case: Any) -> dict[str, list[Any]]:
    """Run all steps. Hidden states are stamped with the number of their row."""
    torch, rows, k = engine.torch, len(case.first), case.width
    scores, lists = None, {"scores": [], "tokens": [], "parents": [], "expanded": [], "inputs": [], "hidden": []}
    for step in range(case.steps):
        masses, tokens = _step_inputs(engine, case, step)
        count = rows if step == 0 else rows * k
        hidden = torch.arange(count, dtype=torch.float32, device=engine.device)[:, None]
        with engine.production():
            inputs, hidden, scores, info = engine.symbol("select.tree_step")(step, masses, tokens, hidden, scores, k)
        for name, value in zip(("scores", "tokens", "parents"), info, strict=True):
            lists[name].append(value)
        if step:
            lists["expanded"].append(scores)
            lists["inputs"].append(inputs.view(rows, k))
            lists["hidden"].append(hidden.view(rows, k).long() - k * torch.arange(rows, device=engine.device)[:, None])
    return lists


def _joined(parts: list[Any], rows: int) -> list[list[Any]]:
    """One list a request out of a [B, k] tensor a step."""
    return [[v for part in parts for v in part[i].tolist()] for i in range(rows)]


def _picks(parent_list: Any, last: Any, case: Any) -> list[list[int]]:
    """Numbers of the expanded candidates: all steps but the last stand in the list
    that the tree is built from, behind the root and step 0."""
    k, found = case.width, []
    for row, end in zip(parent_list.tolist(), last.tolist(), strict=True):
        head = row[: k + 1] == list(range(-1, k))
        found.append(row[k + 1 :] + end if head else [FILLER] * (k * (case.steps - 1)))
    return found


def _orphans(selected: list[int], picks: list[int], k: int) -> int:
    """Kept candidates that stand under one that is not kept."""
    nodes = list(range(k)) + picks  # expanded nodes of step 0, 1, ...
    return sum(n >= k and nodes[(n - k) // k] not in selected for n in selected)


@adapter(contract=CONTRACT, module="eagle", symbol="select_top_k_tokens+organize_draft_results", observes=OBSERVES,
         needs=("select.tree_step", "select.tree_cut"), accepts=tree)  # fmt: skip
def eagle_tree(engine: Any, case: Any) -> dict[str, Any]:
    grown, rows, k = _grow(engine, case), len(case.first), case.width
    with engine.production():
        parent_list, selected, tokens = engine.symbol("select.tree_cut")(
            grown["scores"], grown["tokens"], grown["parents"], case.draft_tokens
        )
    picks = _picks(parent_list, grown["parents"][-1], case) if case.steps > 1 else [[] for _ in range(rows)]
    return {
        "values": _joined(grown["expanded"], rows),
        "any_tokens": tokens,
        "picks": picks,
        "next_inputs": _joined(grown["inputs"], rows),
        "hidden_rows": _joined(grown["hidden"], rows),
        "selected": selected,
        "orphans": [_orphans(s, p, k) for s, p in zip(selected.tolist(), picks, strict=True)],
    }
