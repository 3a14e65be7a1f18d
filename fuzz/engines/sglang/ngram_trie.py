"""The n-gram corpus: the C++ trie that ships, compiled by the engine's own loader.

The compiler takes 11 s on an idle core, once for each release; one that takes much longer
makes the target unsupported here, because a killed compiler would look like a hang. Each
case gets a corpus of its own. The same questions are asked three times: under
the requests' own names, again under the same names with nothing new (the trie then
goes on from the matches it remembers), and under new names.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

import numpy as np

from fuzz.adapter import Unsupported, adapter
from oracle.verify.ngram_paths import continuations, examine
from oracle.verify.ngram_tree import NgramTreeCase, Request, Text

CONTRACT = "verify.ngram_tree"
MATCH_TYPES = {"recency": "BFS", "frequency": "PROB"}
LONGEST_S = 25  # for the compiler, of the 30 s that a case may take

_refused: list[str] = []


def compiled(engine: Any) -> Any:
    """The corpus, with the extension behind it built. Raises Unsupported when that takes too long."""

    def late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    if _refused:
        raise Unsupported(_refused[0])
    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(LONGEST_S)
    try:
        engine.symbol("ngram.corpus_module").get_ngram_corpus_cls()
    except TimeoutError:
        _refused.append(f"compiling the corpus took more than {LONGEST_S} s; run again on an idle machine")
        raise Unsupported(_refused[0]) from None
    except RuntimeError as error:  # how the loader reports a compiler that failed or is missing
        _refused.append("the corpus does not compile here: " + _reason(str(error)))
        raise Unsupported(_refused[0]) from None
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return engine.symbol("ngram.corpus")


def _reason(log: str) -> str:
    """The first error of a compiler's output, or its beginning."""
    return next((line for line in log.splitlines() if "error:" in line), log)[-300:]


def _ask(corpus: Any, case: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    if not hasattr(corpus, "erase_match_state"):  # before requests had a state
        return corpus.batch_get(case.context)
    names = [f"{name} {i}" for i in range(len(case.context))]
    return corpus.batch_get(names, case.context, [len(c) for c in case.context])


@adapter(contract=CONTRACT, module="ngram", symbol="NgramCorpus.batch_get",
         observes=("root_token", "broken_rows", "twins", "unfounded", "drafts", "unsteady"),
         needs=("ngram.corpus", "ngram.corpus_module"), execution="torch")  # fmt: skip
def batch_get(engine: Any, case: Any) -> dict[str, Any]:
    made = compiled(engine)
    with engine.production():
        corpus = made(
            max_trie_depth=case.depth,
            min_bfs_breadth=1,
            max_bfs_breadth=case.breadth,
            draft_token_num=case.draft_tokens,
            match_type=MATCH_TYPES[case.order],
            capacity=case.capacity,
        )
        corpus.batch_put([c for c in case.corpus if c])
        corpus.synchronize()
        answers = [_ask(corpus, case, name) for name in ("request", "request", "other")]
    rows, nodes = len(case.context), case.draft_tokens
    tokens, masks = zip(*((t.reshape(rows, nodes), m.reshape(rows, nodes, nodes)) for t, m in answers), strict=True)
    plain = NgramTreeCase(
        case.order, nodes, case.depth, case.breadth, case.capacity,
        tuple(Text(tuple(t)) for t in case.corpus), tuple(Request(tuple(c)) for c in case.context),
    )  # fmt: skip
    found = [examine(continuations(plain, c[-1]), tokens[0][i], masks[0][i]) for i, c in enumerate(case.context)]
    unsteady = [
        sum(int((t[i] != tokens[0][i]).sum() + (m[i] != masks[0][i]).sum()) for t, m in zip(tokens, masks, strict=True))
        for i in range(rows)
    ]
    return {
        "root_token": [int(t[0]) for t in tokens[0]],
        **{name: [int(f[name]) for f in found] for name in found[0]},
        "unsteady": unsteady,
    }
