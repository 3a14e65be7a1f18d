"""One round of a worker, observed from outside while its real caller runs.

What a caller decides (does it prepare track slots, which lengths does the batch
hold at the commit, when does it publish) is seen by its effects on the batch at
the few places where the round leaves the worker: the target's forward, the
backend's hook, the publication. No name of an engine function is needed for
that, so the same recorder serves every release and worker.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, MethodType, SimpleNamespace
from typing import Any

from fuzz.adapter import accept_all, adapter
from fuzz.engines.closed import ClosedStub
from fuzz.engines.sglang.commit_hook import CommitHook

FIELDS = ("order", "current_step", "checkpoint_step", "published")
HANDED = ("current_step", "checkpoint_step")  # what the hook receives, whatever the order
PREPARE, VERIFY, COMMIT, PUBLISH = "prepare_tracks", "verify", "commit_states", "publish_lengths"
TOKENS = 7919  # distinct token ids that the drafts of a round are made of

Recorded = Callable[[Any, Any, "Round"], dict[str, Any]]


def attach_round(
    module: str, needs: tuple[str, ...], recorded: Recorded, accepts: Callable[[Any], str | None] = accept_all
) -> None:
    """Register both views of a worker's real ``forward_batch_generation``.

    ``recorded(engine, case, round)`` drives it. The first target is the whole
    round. The second, ``.handed_steps``, runs the same round with a batch that
    holds its track slots already and observes only what the hook receives, so
    that neither missing preparation nor early publishing masks it.
    """
    for symbol, fields, handed_only in (
        ("forward_batch_generation", FIELDS, False),
        ("forward_batch_generation.handed_steps", HANDED, True),
    ):

        def run(engine: Any, case: Any, handed_only: bool = handed_only) -> dict[str, Any]:
            return recorded(engine, case, Round(case, handed_only=handed_only))

        register = adapter(
            contract="commit.call_order",
            module=module,
            symbol=symbol,
            observes=fields,
            needs=needs,
            execution="worker",
            accepts=accepts,
        )
        register(run)


class Round:
    """Records the events of one round.

    ``batch`` is set by the driver before the call. Track slots count as prepared
    from the first moment at which the batch holds the slots that its requests own
    now: before the round it holds none, as a filtered or merged batch does.
    ``handed_only`` is for a batch that was prepared before the round and reports
    the steps handed to the hook alone: which lengths a caller hands over shows
    even where the caller prepares nothing or publishes too early.
    """

    def __init__(self, case: Any, *, handed_only: bool = False):
        self.handed_only = handed_only
        self._holds_tracks = handed_only and case.tracking
        self.slots = case.track_slot.tolist()
        self.pre = case.pre.tolist()
        self.post = (case.pre + case.committed).tolist()
        self.events: list[str] = []
        self.published: list[int] | None = None
        self.batch_lengths_at_commit: list[int] | None = None
        self.batch: Any = None
        self.hook = CommitHook(on_call=self._committed)

    def start(self, engine: Any, batch: Any) -> Any:
        """The round begins with ``batch``; returns it."""
        self.batch = batch
        if self._holds_tracks:
            batch.mamba_track_indices = engine.torch.tensor(self.slots, device=engine.device)
        return batch

    def _note(self, event: str) -> None:
        if PREPARE not in self.events and self.slots and self._tracks_ready():
            self.events.append(PREPARE)
        self.events.append(event)

    def _tracks_ready(self) -> bool:
        held = self.batch.mamba_track_indices
        return held is not None and held.tolist() == self.slots

    def verified(self) -> None:
        """The target's forward runs now."""
        self._note(VERIFY)

    def _committed(self) -> None:
        self._note(COMMIT)
        self.batch_lengths_at_commit = self.batch.seq_lens.tolist()

    def publish(self, new_lengths: Any, **_: Any) -> None:
        """The scheduler's callback. Publishing no length is not an event."""
        if new_lengths.numel():
            self._note(PUBLISH)
            self.published = new_lengths.tolist()

    def observed(self, returned_lengths: list[int]) -> dict[str, Any]:
        """Outcome fields; ``returned_lengths`` is what the result carries for the
        scheduler that runs without overlap and must be what was published."""
        published = self.published if self.published is not None else []
        handed = self.hook.observed(self.slots)
        steps = {name: handed[name] for name in HANDED}
        if self.handed_only:
            return steps
        return {
            "order": self.events,
            **steps,
            "published": published if returned_lengths == published else returned_lengths,
        }

    def check_recorded_fact(self, recorded: str) -> None:
        """The version record says which lengths the batch holds at the commit;
        the caller must agree, else the record is wrong."""
        if self.batch_lengths_at_commit is None:
            return
        found = {"pre": self.pre, "post": self.post}[recorded]
        if self.batch_lengths_at_commit != found:
            raise AssertionError(
                f"the record says that the batch holds lengths {recorded} verify at the commit, "
                f"its caller held {self.batch_lengths_at_commit}"
            )


class WorkerStub(ClosedStub):
    """A worker with the given attributes and the methods of its real class.

    Methods and properties are production code and run; data that nobody gave is
    a touched stub.
    """

    def __init__(self, production_class: type, /, absent: tuple[str, ...] = (), **attributes: Any):
        super().__init__(f"worker {production_class.__name__}", absent, **attributes)
        self.__dict__["_closed_class"] = production_class

    def __getattr__(self, name: str) -> Any:
        found = None if name.startswith("__") else getattr(self.__dict__.get("_closed_class"), name, None)
        if isinstance(found, FunctionType):
            return MethodType(found, self)
        if isinstance(found, property):
            return found.fget(self)
        return super().__getattr__(name)


def chains(engine: Any, case: Any) -> tuple[Any, Any]:
    """Draft blocks and target predictions, int64 [B, N], laid out so that exactly
    the case's drafts match: row i holds consecutive ids, and after the last
    committed token the target wants something else."""
    torch = engine.torch
    rows, width = len(case.pre), case.draft_tokens
    block = torch.arange(rows * width, device=engine.device).view(rows, width) % TOKENS
    predicted = torch.roll(block, -1, dims=1).clone()
    predicted[:, -1] = TOKENS + 1
    for i, committed in enumerate(case.committed.tolist()):
        predicted[i, committed - 1] = TOKENS + 2
    return block, predicted


def given_chains(engine: Any, case: Any) -> tuple[Any, Any]:
    """Draft blocks and predictions of a verify.greedy_chain case, int64 [B, N]."""
    tensor = engine.torch.tensor
    return tensor(case.block, device=engine.device), tensor(case.predicted, device=engine.device)


def untracked(case: Any) -> Any:
    """The round in which a verify.greedy_chain case is shown to a worker: a model
    without recurrent state, nothing tracked."""
    rows, width = case.block.shape
    nothing = case.pre * 0
    return SimpleNamespace(
        grid=256, draft_tokens=width, recurrent=False, hook=False, tracking=False,
        pre=case.pre, committed=nothing + 1, track_slot=nothing - 1,
    )  # fmt: skip


def tracked_requests(engine: Any, case: Any) -> tuple[list[ClosedStub], Any]:
    """Requests that own the case's track slots, and the pool that maps them.

    Each request alternates between two slots; the one for its next checkpoint is
    the case's, the other a decoy. Releases before 0.5.20 keep the position on the
    request, later ones on its key-value record, so it stands in both.
    """
    torch = engine.torch
    mapping = torch.full((len(case.pre), 2), -1, dtype=torch.int64, device=engine.device)
    requests = []
    for i, slot in enumerate(case.track_slot.tolist()):
        position = i % 2
        mapping[i, position] = slot
        mapping[i, 1 - position] = 10_000 + i
        kv = ClosedStub("request.kv", mamba_next_track_idx=position)
        requests.append(ClosedStub("request", mamba_next_track_idx=position, kv=kv))
    pool = ClosedStub("req_to_token_pool", req_index_to_mamba_ping_pong_track_buffer_mapping=mapping)
    return requests, pool
