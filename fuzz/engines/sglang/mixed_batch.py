"""commit.mixed_batch through SGLang's batches.

Real: the request-to-token pool, ``Req``, both ``ScheduleBatch`` objects and the algorithm.
The batches are as preparation leaves them: prompts extended, running requests with the
pending token counted (without speculation), or still at the committed base (with it; under
overlap at the base that the scheduler knows, until the lengths are published).
"""

from __future__ import annotations

from array import array
from typing import Any

from fuzz.adapter import adapter
from fuzz.engines.closed import ClosedStub
from fuzz.engines.sglang.settings import settings

CONTRACT = "commit.mixed_batch"
OBSERVES = (
    "rows", "owner", "pool_row", "length", "host_length", "prefix", "extend", "locations", "extend_tokens",
    "table_changed",
)  # fmt: skip
NEEDS = (
    "settings.config", "lifecycle.request", "lifecycle.sampling", "lifecycle.batch", "lifecycle.algorithm",
    "mixed.pool", "mixed.join",
)  # fmt: skip
VOCABULARY = 1000
MISSING = -1


class Mixed:
    """The two batches of a case; rows of ``requests`` in the order of the batch."""

    def __init__(self, engine: Any, case: Any):
        self.engine, self.case = engine, case
        torch, table = engine.torch, case.table
        self.pool = engine.symbol("mixed.pool")(len(table), table.shape[1], engine.device, False)
        self.pool.req_to_token[: len(table)] = torch.from_numpy(table).to(self.pool.req_to_token)
        algorithms = engine.symbol("lifecycle.algorithm")
        self.algorithm = algorithms.EAGLE if case.speculative else algorithms.NONE
        self.prompts = [i for i in case.order if case.chunk[i]]
        self.running = [i for i in case.order if not case.chunk[i]]
        self.requests = {i: self._request(i) for i in case.order}
        self.batch = self._prefill()
        self.decode = self._decode()

    def _request(self, i: int) -> Any:
        """A running request knows what the scheduler has read of its tokens."""
        known = int(self.case.length[i] - self.case.in_flight[i])
        prompt = known if self.case.chunk[i] else (known + 1) // 2
        ids = [t % VOCABULARY for t in range(known)]
        ids = ids if self.engine.fact("lifecycle.ids") == "list" else array("q", ids)
        sampling = self.engine.symbol("lifecycle.sampling")(max_new_tokens=VOCABULARY)
        request = self.engine.symbol("lifecycle.request")(f"r{i}", "", ids[:prompt], sampling, vocab_size=VOCABULARY)
        request.output_ids.extend(ids[prompt:])
        return request

    def _locations(self, i: int, start: int, end: int) -> list[int]:
        return self.case.table[self.case.pool_row[i], start:end].tolist()

    def _tensor(self, values: Any, dtype: str = "int64", host: bool = False) -> Any:
        torch = self.engine.torch
        device = "cpu" if host else self.engine.device
        return torch.tensor([int(v) for v in values], dtype=getattr(torch, dtype), device=device)

    def _batch(self, rows: list[int], lengths: list[int], **attributes: Any) -> Any:
        batch = self.engine.symbol("lifecycle.batch")(reqs=[self.requests[i] for i in rows])
        pool_rows = self.case.pool_row[rows]
        common = {
            "req_to_token_pool": self.pool,
            "model_config": ClosedStub("model_config", is_encoder_decoder=False),
            "sampling_info": ClosedStub("sampling_info", merge_batch=lambda other: None),
            "enable_overlap": bool(self.case.overlap),
            "device": self.engine.device,
            "spec_algorithm": self.algorithm,
            "req_pool_indices": self._tensor(pool_rows),
            "req_pool_indices_cpu": self._tensor(pool_rows, host=True),
            "seq_lens": self._tensor(lengths),
            "seq_lens_cpu": self._tensor(lengths, host=True),
            "orig_seq_lens": self._tensor(lengths, "int32"),
            "seq_lens_sum": sum(lengths),
            "input_ids": None,
        }
        for name, value in (common | attributes).items():
            setattr(batch, name, value)
        return batch

    def _joined(self, count: int) -> Any:
        return self._tensor(range(count)) if self.engine.fact("mixed.input_ids") == "joined" else None

    def _prefill(self) -> Any:
        lengths, chunks = ([int(column[i]) for i in self.prompts] for column in (self.case.length, self.case.chunk))
        spans = [self._locations(i, n - c, n) for i, n, c in zip(self.prompts, lengths, chunks, strict=True)]
        return self._batch(
            self.prompts,
            lengths,
            input_ids=self._joined(sum(chunks)),
            out_cache_loc=self._tensor(sum(spans, [])),
            prefix_lens=[n - c for n, c in zip(lengths, chunks, strict=True)],
            extend_lens=chunks,
            extend_num_tokens=sum(chunks),
            extend_logprob_start_lens=[0] * len(chunks),
        )

    def _decode(self) -> Any:
        case = self.case
        if not case.speculative:
            lengths = [int(case.length[i]) for i in self.running]
            last = [self._locations(i, n - 1, n)[0] for i, n in zip(self.running, lengths, strict=True)]
            return self._batch(
                self.running, lengths, input_ids=self._joined(len(lengths)), out_cache_loc=self._tensor(last)
            )
        lengths = [int(case.length[i] - case.in_flight[i]) - 1 for i in self.running]
        batch = self._batch(self.running, lengths)
        if not case.host_lengths:
            batch.seq_lens_cpu = batch.seq_lens_sum = None
        return batch

    def join(self) -> None:
        with self.engine.production():
            self.engine.symbol("mixed.join")(self.batch, self.decode)

    def resolve(self) -> None:
        """The lengths are published, and the batch starts."""
        published = self.engine.torch.zeros(len(self.case.table), dtype=self.engine.torch.int64)
        for i in self.running:
            published[int(self.case.pool_row[i])] = int(self.case.length[i]) - 1
        relay = ClosedStub(
            "relay",
            new_seq_lens_buf=published.to(self.engine.device),
            publish_ready=None,  # nothing to wait for
            fwd_prepare_d2h_stream=None,
            req_to_token=self.pool.req_to_token,
        )
        with self.engine.production():
            self.engine.symbol("mixed.resolve")(relay, self.batch)

    def observed(self) -> dict[str, Any]:
        """What stands at the row at which each request belongs."""
        batch, case = self.batch, self.case
        where = {id(request): int(case.pool_row[i]) for i, request in self.requests.items()}
        extends = list(batch.extend_lens)
        locations, spans = batch.out_cache_loc.tolist(), []
        for count in extends:
            spans.append(locations[:count])
            locations = locations[count:]
        if spans:
            spans[-1] += locations  # those of no row show at the last
        by_row = {
            "owner": [where[id(r)] for r in batch.reqs],
            "pool_row": batch.req_pool_indices.tolist(),
            "length": batch.seq_lens.tolist(),
            "host_length": [] if batch.seq_lens_cpu is None else batch.seq_lens_cpu.tolist(),
            "prefix": list(batch.prefix_lens),
            "extend": extends,
            "locations": spans,
        }
        place = {i: row for row, i in enumerate(case.order)}
        found: dict[str, Any] = {}
        for name, values in by_row.items():
            nothing = [] if name == "locations" else MISSING
            short = len(place) - len(values)
            padded = [*values, *[nothing] * short]
            found[name] = [padded[place[i]] for i in range(len(place))]
        table = self.pool.req_to_token[: len(case.table)].cpu().numpy()
        return found | {
            "rows": max(map(len, by_row.values())),
            "extend_tokens": int(batch.extend_num_tokens),
            "table_changed": int((table != case.table).sum()),
        }


def _mixed(engine: Any, case: Any) -> Mixed:
    if case.speculative:
        engine.fact("mixed.speculative")
    return Mixed(engine, case)


@adapter(contract=CONTRACT, module="schedule_batch", symbol="ScheduleBatch.mix_with_running", observes=OBSERVES,
         needs=NEEDS,
         accepts=lambda case: "speculative rows are final only when the lengths are published"
         if case.speculative and case.overlap else None)  # fmt: skip
def mix_with_running(engine: Any, case: Any) -> dict[str, Any]:
    with settings(engine, interval=1):
        mixed = _mixed(engine, case)
        mixed.join()
        engine.require_path(mixed.batch.forward_mode.is_mixed(), "the mixed forward mode")
        return mixed.observed()


@adapter(contract=CONTRACT, module="overlap_utils", symbol="FutureMap.resolve_mixed_spec_tails", observes=OBSERVES,
         needs=(*NEEDS, "mixed.resolve"),
         accepts=lambda case: None if case.speculative and case.overlap
         else "rows are rebuilt for speculation under overlap only")  # fmt: skip
def resolve_mixed_spec_tails(engine: Any, case: Any) -> dict[str, Any]:
    """Mixed from what the scheduler knows, then rebuilt from what was published."""
    with settings(engine, interval=1):
        mixed = _mixed(engine, case)
        mixed.join()
        mixed.resolve()
        return mixed.observed()
