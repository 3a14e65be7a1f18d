"""The multi-layer draft worker's window around a verify: rotated, widened, kept.

The worker's own methods run round after round on its own buffers, with the batch that the
case says; buffers that a kernel fills start full of filler. The kept rows of pool rows that
nobody in the case has are watched.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fuzz.adapter import adapter
from fuzz.engines.bound import bound
from fuzz.engines.closed import ClosedStub
from fuzz.worker.layout import FILLER
from oracle.draft.inputs_case import POOL_ROWS, TABLE, location

CONTRACT = "draft.inputs"
HIDDEN = 4  # elements of a hidden state, all of them its number
MIXED = -2
WINDOW = ("front_tokens", "front_hidden", "block_tokens", "block_hidden", "positions", "locations")
STASH = ("stash_tokens", "stash_hidden", "others_changed")


def _table() -> np.ndarray:
    position = np.arange(TABLE, dtype=np.int64)
    rows = np.arange(POOL_ROWS, dtype=np.int64)[:, None]
    return (1 + rows * TABLE + (5 * position + 3) % TABLE).astype(np.int32)


assert _table()[3, 7] == location(3, 7)


class Rounds:
    """Who takes part in which round, and what verify hands over there."""

    def __init__(self, engine: Any, case: Any):
        self.engine, self.case = engine, case

    def entering(self, t: int) -> list[int]:
        return [i for i, enters in enumerate(self.case.enters) if enters == t]

    def active(self, t: int) -> list[int]:
        c = self.case
        return [i for i in range(len(c.enters)) if c.enters[i] <= t < c.enters[i] + c.rounds[i]]

    def last(self) -> int:
        return int((self.case.enters + np.maximum(self.case.rounds, 1)).max())

    def number(self, i: int, t: int) -> int:
        """Which of its own rounds round ``t`` is for request ``i``."""
        return t - int(self.case.enters[i])

    def pre(self, i: int, t: int) -> int:
        return int(self.case.prompt[i] + self.case.commits[i][: self.number(i, t)].sum())

    def committed(self, i: int, t: int) -> int:
        return int(self.case.commits[i][self.number(i, t)])

    def rows(self, i: int, start: int, count: int, committed: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Tokens behind, and numbers of the hidden states of, ``count`` positions; rows
        behind the committed ones hold what was rejected."""
        q = np.arange(start, start + count)
        tokens, states = self.case.history[i][q + 1].copy(), self.case.first_stamp[i] + q
        if committed is not None:
            tokens[committed:] += 10**6
            states[committed:] += TABLE // 2 + 1
        return tokens, states

    def tensor(self, values: Any, dtype: str = "int64") -> Any:
        return self.engine.tensor(np.asarray(values), dtype, contiguous=True)

    def hidden(self, numbers: np.ndarray) -> Any:
        return self.tensor(numbers, "float32")[:, None].repeat(1, HIDDEN)


def _numbers(torch: Any, hidden: Any) -> list[int]:
    whole = (hidden == hidden[..., :1]).all(dim=-1)
    return torch.where(whole, hidden[..., 0], MIXED).long().tolist()


def _worker(engine: Any, case: Any) -> Any:
    torch = engine.torch
    shape = (POOL_ROWS, case.front)
    return bound(
        engine.symbol("boundary_kv.worker"), "draft worker",
        device=engine.device, plan_stream=None,
        draft_extend_num_front_tokens=case.front, draft_extend_num_warmup_tokens=case.warmup,
        speculative_num_draft_tokens=case.width,
        req_to_token_pool=ClosedStub("pool", req_to_token=engine.tensor(_table(), "int32", contiguous=True)),
        boundary_kv_stash_tokens=torch.full(shape, FILLER, dtype=torch.int64, device=engine.device),
        boundary_kv_stash_hiddens=torch.full((*shape, HIDDEN), float(FILLER), device=engine.device),
        boundary_kv_stash_valid_lens=torch.zeros(POOL_ROWS, dtype=torch.int32, device=engine.device),
    )  # fmt: skip


MODE = ClosedStub("forward mode", is_idle=lambda: False)


@adapter(contract=CONTRACT, module="multi_layer_eagle_v2", symbol="boundary stash",
         observes=(*WINDOW, *STASH), needs=("boundary_kv.worker", "boundary_kv.seed"), execution="worker")  # fmt: skip
def boundary(engine: Any, case: Any) -> dict[str, Any]:
    """``_seed_boundary_kv_stash`` for those who enter, then for the batch of each round
    ``_compute_boundary_kv_locs_positions`` and ``_fill_boundary_kv_front_and_update_stash``."""
    worker, rounds = _worker(engine, case), Rounds(engine, case)
    found: dict[str, list[list[int]]] = {name: [[] for _ in case.prompt] for name in (*WINDOW, *STASH[:2])}
    for t in range(rounds.last()):
        if rounds.entering(t):
            _seed(worker, rounds, rounds.entering(t))
        if rounds.active(t):
            _round(worker, rounds, t, found)
        for i, (enters, count) in enumerate(zip(case.enters, case.rounds, strict=True)):
            if t == enters + max(count, 1) - 1:
                row = int(case.pool_row[i])
                first = case.front - int(worker.boundary_kv_stash_valid_lens[row])
                found["stash_tokens"][i] = worker.boundary_kv_stash_tokens[row, first:].tolist()
                found["stash_hidden"][i] = _numbers(engine.torch, worker.boundary_kv_stash_hiddens[row, first:])
    others = [row for row in range(POOL_ROWS) if row not in case.pool_row]
    changed = int((worker.boundary_kv_stash_tokens[others] != FILLER).any(dim=1).sum())
    changed += int((worker.boundary_kv_stash_hiddens[others] != FILLER).flatten(1).any(dim=1).sum())
    return found | {"others_changed": changed + int((worker.boundary_kv_stash_valid_lens[others] != 0).sum())}


def _seed(worker: Any, rounds: Rounds, entering: list[int]) -> None:
    case = rounds.case
    parts = [rounds.rows(i, int(case.prompt[i] - case.chunk[i]), int(case.chunk[i])) for i in entering]
    lengths = [len(tokens) for tokens, _ in parts]
    forward_batch = ClosedStub(
        "prefill batch",
        forward_mode=MODE,
        input_ids=rounds.tensor(np.concatenate([tokens for tokens, _ in parts])),
        extend_seq_lens=rounds.tensor(lengths, "int32"),
        extend_start_loc=rounds.tensor(np.cumsum([0, *lengths[:-1]]), "int32"),
        req_pool_indices=rounds.tensor(case.pool_row[entering]),
    )
    with rounds.engine.production():
        worker._seed_boundary_kv_stash(forward_batch, rounds.hidden(np.concatenate([states for _, states in parts])))


def _round(worker: Any, rounds: Rounds, t: int, found: dict[str, list[list[int]]]) -> None:
    engine, case, torch = rounds.engine, rounds.case, rounds.engine.torch
    active, window = rounds.active(t), case.front + case.width
    parts = [rounds.rows(i, rounds.pre(i, t), case.width, rounds.committed(i, t)) for i in active]
    batch = ClosedStub(
        "batch",
        forward_mode=MODE,
        seq_lens=rounds.tensor([rounds.pre(i, t) for i in active]),
        req_pool_indices=rounds.tensor(case.pool_row[active]),
    )
    ids = torch.full((len(active) * window,), FILLER, dtype=torch.int64, device=engine.device)
    hidden = torch.full((len(active) * window, HIDDEN), float(FILLER), device=engine.device)
    forward_batch = ClosedStub("draft batch", input_ids=ids, spec_info=ClosedStub("draft input", hidden_states=hidden))
    predict = rounds.tensor(np.concatenate([tokens for tokens, _ in parts]), "int32")
    states = rounds.hidden(np.concatenate([numbers for _, numbers in parts]))
    committed = rounds.tensor([rounds.committed(i, t) for i in active], "int32")
    with engine.production():
        locations, positions, *_ = worker._compute_boundary_kv_locs_positions(batch)
        worker._fill_boundary_kv_front_and_update_stash(batch, forward_batch, predict, states, committed)
    shape, numbers = (len(active), window), _numbers(torch, hidden.view(len(active), window, HIDDEN))
    for place, i in enumerate(active):
        end = case.front + rounds.committed(i, t)
        tokens = ids.view(shape)[place].tolist()
        for name, row in (
            ("front_tokens", tokens[: case.front]),
            ("block_tokens", tokens[case.front : end]),
            ("front_hidden", numbers[place][: case.front]),
            ("block_hidden", numbers[place][case.front : end]),
            ("positions", positions.view(shape)[place].tolist()),
            ("locations", locations.view(shape)[place].tolist()),
        ):
            found[name][i] += row


@adapter(contract=CONTRACT, module="multi_layer_eagle", symbol="rotate_input_ids",
         observes=("prefill_tokens",), needs=("rotate.function",), execution="triton")  # fmt: skip
def rotate_prefill(engine: Any, case: Any) -> dict[str, Any]:
    """All prompts as one prefill of ragged chunks, between rows of nobody."""
    rounds = Rounds(engine, case)
    lengths = case.chunk.tolist()
    ids = [case.history[i][case.prompt[i] - n : case.prompt[i]] for i, n in enumerate(lengths)]
    starts = np.cumsum([1, *lengths[:-1]])
    flat = rounds.tensor(np.concatenate([[FILLER], *ids, [FILLER]]))
    generated = rounds.tensor([case.history[i][n] for i, n in enumerate(case.prompt)])
    with engine.production():
        engine.symbol("rotate.function")(
            flat, rounds.tensor(starts, "int32"), rounds.tensor(lengths, "int32"), generated
        )
    rows = flat.tolist()
    stray = [row for row in (rows[0], rows[-1]) if row != FILLER]  # shown as one token too many
    return {"prefill_tokens": [rows[s : s + n] + stray for s, n in zip(starts.tolist(), lengths, strict=True)]}


@adapter(contract=CONTRACT, module="multi_layer_eagle", symbol="rotate_input_ids(select_index)",
         observes=("rotated",), needs=("rotate.function",), execution="triton",
         accepts=lambda case: None if case.rounds.any() else "no request is verified")  # fmt: skip
def rotate_block(engine: Any, case: Any) -> dict[str, Any]:
    """The widened windows of each round's batch after a draft step."""
    rounds, window = Rounds(engine, case), case.front + case.width
    found: list[list[int]] = [[] for _ in case.prompt]
    for t in range(rounds.last()):
        active = rounds.active(t)
        if not active:
            continue
        parts = [rounds.rows(i, rounds.pre(i, t), case.width, rounds.committed(i, t))[0] for i in active]
        front = np.full(case.front, FILLER)
        flat = rounds.tensor(np.concatenate([np.concatenate([front, tokens]) for tokens in parts]))
        starts = np.arange(len(active)) * window
        ends = np.array([rounds.committed(i, t) for i in active]) + case.front - 1
        drafts = rounds.tensor([[case.drafted[i][rounds.number(i, t)]] for i in active])
        lengths = rounds.tensor(np.full(len(active), window), "int32")
        with engine.production():
            engine.symbol("rotate.function")(
                flat, rounds.tensor(starts, "int32"), lengths, drafts, rounds.tensor(starts + ends)
            )
        for place, i in enumerate(active):
            row = flat.view(len(active), window)[place]
            found[i] += row[case.front : case.front + rounds.committed(i, t)].tolist()
    return {"rotated": found}


def _kept_from_prefill(engine: Any, case: Any, key: str) -> dict[str, Any]:
    rounds = Rounds(engine, case)
    lengths = case.chunk.tolist()
    starts = np.cumsum([0, *lengths[:-1]])
    states = [rounds.rows(i, int(case.prompt[i]) - n, n)[1] for i, n in enumerate(lengths)]
    pool = engine.torch.full((POOL_ROWS, case.front, HIDDEN), float(FILLER), device=engine.device)
    with engine.production():
        engine.symbol(key)(
            rounds.hidden(np.concatenate(states)), rounds.tensor(case.pool_row), pool, case.front, len(lengths),
            rounds.tensor(lengths, "int32"), rounds.tensor(starts, "int32"),
        )  # fmt: skip
    others = [row for row in range(POOL_ROWS) if row not in case.pool_row]
    return {
        "stash_hidden": [_numbers(engine.torch, pool[row]) for row in case.pool_row.tolist()],
        "others_changed": int((pool[others] != FILLER).flatten(1).any(dim=1).sum()),
    }


def _one_prefill(case: Any) -> str | None:
    if case.rounds.any() or case.enters.any():
        return "called once, for the batch that was prefilled"
    return "keeps as many rows as a prompt has at least" if (case.chunk < case.front).any() else None


@adapter(contract=CONTRACT, module="multi_layer_eagle", symbol="assign_hidden_states_pool_triton",
         observes=("stash_hidden", "others_changed"), needs=("boundary_kv.pool",), execution="triton",
         accepts=_one_prefill)  # fmt: skip
def keep_triton(engine: Any, case: Any) -> dict[str, Any]:
    return _kept_from_prefill(engine, case, "boundary_kv.pool")


@adapter(contract=CONTRACT, module="multi_layer_eagle", symbol="assign_hidden_states_pool_torch",
         observes=("stash_hidden", "others_changed"), needs=("boundary_kv.pool_torch",), execution="torch",
         accepts=_one_prefill)  # fmt: skip
def keep_torch(engine: Any, case: Any) -> dict[str, Any]:
    return _kept_from_prefill(engine, case, "boundary_kv.pool_torch")
