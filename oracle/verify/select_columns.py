"""The arrays that an adapter of verify.draft_select receives."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracle.verify.rows import Row, dense
from oracle.verify.select_case import DraftSelectCase, columns_of


def columns(case: DraftSelectCase) -> dict[str, Any]:
    """``scores`` float32 [B, V] (top1, topk), [B, S, K, K] (walk) or two arrays
    [B, K] and [B, S - 1, K, K] (tree: ``first`` and ``scores``); ``candidates``
    int64 [B, S, K] (walk), [B, S - 1, K * K] beside ``first_candidates`` [B, K]
    (tree); ``coins`` float32 [B, S], ``temperature`` float32 [B], ``greedy`` bool [B],
    ``position`` int64 [B], ``divisor`` float32 [B, V] and ``divided`` bool [B]."""
    requests, width = case.requests, columns_of(case)

    def scores(slots: slice) -> np.ndarray:
        return np.array([[[dense(r, width) for r in s.rows] for s in q.slots[slots]] for q in requests], np.float32)

    def candidates(slots: slice) -> np.ndarray:
        return np.array([[s.candidates for s in q.slots[slots]] for q in requests], np.int64)

    made: dict[str, Any] = {
        "form": case.form,
        "dtype": case.dtype,
        "vocabulary": case.vocabulary,
        "width": case.width,
        "draft_tokens": case.draft_tokens,
        "steps": len(requests[0].slots),
        "position": np.array([q.position for q in requests], np.int64),
        "coins": np.array([[s.coin for s in q.slots] for q in requests], np.float32),
        "temperature": np.array([q.temperature for q in requests], np.float32),
        "greedy": np.array([q.greedy for q in requests], np.bool_),
        "divided": np.array([q.divisor is not None for q in requests], np.bool_),
    }
    if case.form in ("top1", "topk"):
        made["scores"] = scores(slice(None))[:, 0, 0]
        made["divisor"] = np.stack([dense(q.divisor or Row((), 1.0), width) for q in requests])
    elif case.form == "walk":
        made |= {"scores": scores(slice(None)), "candidates": candidates(slice(None))}
    else:
        shape = (len(requests), -1, width, width)
        made |= {"first": scores(slice(1))[:, 0, 0], "first_candidates": candidates(slice(1))[:, 0]}
        later = len(requests[0].slots) > 1
        made["scores"] = scores(slice(1, None)).reshape(shape) if later else np.zeros((len(requests), 0, width, width))
        made["candidates"] = candidates(slice(1, None)) if later else np.zeros((len(requests), 0, width**2), np.int64)
    return made
