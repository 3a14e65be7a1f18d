"""Answer cases one by one: run the adapter, tell whose exception it was.

The answer's ``status`` is ``ok``, ``unsupported``, ``raised`` (production code
raised), ``device_fault`` (its kernels left a device that answers nothing any more; the
answer is ``lost`` and the last of this process), ``harness`` (adapter or stub code
raised) or ``out_of_memory``. It says how long was compiled, ``compile_s``, which is no part of
``production_s``; while a compiler runs, messages ``compiling`` go ahead of it. Whose
fault an exception is, is decided by the innermost frame that belongs either to
this project or to the engine: a stub that raises inside production is ours, a
wrong call signature is ours, an assertion of the engine is the engine's.

An answer with ``outside`` has observed values and says in words what was written beside the
buffers of the call.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from fuzz import wire
from fuzz.adapter import Adapter, Unsupported
from fuzz.engines import closed
from fuzz.worker import sweep
from fuzz.worker.engine import Engine
from fuzz.worker.streams import AsItIs, Late

Run = tuple[dict[str, Any], str]  # what one run of an adapter observed, and what it wrote outside its buffers
RUNS_ON_CPU, RUNS_ON_DEVICE = 2, 20  # of a case that is repeated: an order of threads changes now and then only
PROJECT = tuple(str(Path(__file__).parents[2] / p) + "/" for p in ("fuzz", "oracle", "tests", "examples"))

# Their wrappers pass calls of production on, to torch or to a compiler, and are nobody's fault.
FUZZ = Path(__file__).parents[1]
WRAPPERS = {str(FUZZ / "engines" / "interpreter.py"), str(FUZZ / "worker" / "compiling.py")}


def serve(sock: socket.socket, engine: Engine, adapters: dict[str, Adapter]) -> None:
    """Serve requests until the supervisor closes the connection. A message may bring several;
    each is finished and answered before the next is looked at."""

    def tell(compiling: bool) -> None:
        with contextlib.suppress(wire.Closed):  # a supervisor that is gone is seen at the answer
            wire.send(sock, {"compiling": compiling})

    engine.compiling.tell = tell
    with contextlib.suppress(wire.Closed):
        while True:
            for request in wire.receive(sock)["requests"]:
                given = answer(engine, adapters, request) | {"compile_s": engine.compiling.seconds}
                wire.send(sock, given)
                if given.get("lost"):  # its device answers nothing any more: the next case must not be blamed
                    return


def answer(engine: Engine, adapters: dict[str, Adapter], request: dict[str, Any]) -> dict[str, Any]:
    """Run the adapter of one request, or the operation it names, and say how it went."""
    adapter, began = adapters[request["target"]], time.perf_counter()
    engine.production_s, engine.failed_in_production, engine.lost = 0.0, False, False
    engine.compiling.reset()
    closed.take_touches()
    engine.strided = request.get("strided", False)
    try:
        for key in adapter.needs:
            engine.symbol(key)
        if "op" in request:
            engine.begin()
            found = sweep.OPERATIONS[request["op"]](engine, adapter, request)
            found["outside"] = engine.outside()
            touched = closed.take_touches()
            if touched:
                return _failure("harness", f"a stub was touched: {'; '.join(touched)}")
            return {"status": "ok", **found, **_clock(engine, began)}
        observe = _observer(engine, adapter, request)
        first = observe()
        observed, outside = _differing(engine, observe, first) if request.get("repeat") else first
        touched = closed.take_touches()
        if touched:  # production may have swallowed the exception
            return _failure("harness", f"a stub was touched: {'; '.join(touched)}")
        missing = set(adapter.observes) - set(observed)
        if missing:
            return _failure("harness", f"adapter returned no {', '.join(sorted(missing))}")
        found = {"status": "ok", "observed": observed, **({"outside": outside} if outside else {})}
        if observed is not first[0]:
            found["unstable"] = True
        return found | _clock(engine, began)
    except Unsupported as reason:
        return {"status": "unsupported", "reason": str(reason)} | ({"lost": True} if engine.lost else {})
    except MemoryError as error:
        return _failure("out_of_memory", f"MemoryError: {error}")
    except Exception as error:
        if type(error).__name__ == "OutOfMemoryError" or engine.out_of_memory():
            return _failure("out_of_memory", str(error))
        fault = engine.device_fault()
        found = classify(error, engine_folder(engine.name))
        return found if fault is None else _lost(found, fault, engine.failed_in_production)


def _observer(engine: Engine, adapter: Adapter, request: dict[str, Any]) -> Callable[[], Run]:
    """What runs the adapter once as the request's presentation asks."""
    engine.shown = AsItIs()
    if engine.device == "cpu" and (request.get("stream") or request.get("graph")):
        raise Unsupported("streams and graphs are shown on a GPU only")

    run = partial(_run, engine, adapter)

    def run_late() -> dict[str, Any]:
        engine.shown = Late(engine)
        return run(request["case"])

    if request.get("graph"):
        return partial(engine.graphs.observe, run, request["graph"], request["case"])
    return run_late if request.get("stream") else partial(run, request["case"])


def _run(engine: Engine, adapter: Adapter, columns: dict[str, Any]) -> Run:
    """What one run observed and what it wrote outside its buffers. Nothing is looked for when it
    raises: a lost device is then told by what raised."""
    engine.begin()
    observed = plain(adapter.run(engine, SimpleNamespace(**columns)))  # no tensor of it lives on into another run
    return observed, engine.outside()


def _differing(engine: Engine, observe: Callable[[], Run], first: Run) -> Run:
    """The first further run that did not observe the same bit by bit, else ``first`` with what
    any of them wrote outside."""
    for _ in range((RUNS_ON_CPU if engine.device == "cpu" else RUNS_ON_DEVICE) - 1):
        again = observe()
        if not same(first[0], again[0]):
            return again
        if again[1]:
            first = first[0], first[1] or again[1]
    return first


def _lost(found: dict[str, Any], fault: str, in_production: bool) -> dict[str, Any]:
    """The answer for a device that was lost: production's doing when its own call and
    the synchronisation behind it did not end well, else ours."""
    return found | {"status": "device_fault" if in_production else "harness", "fault": fault, "lost": True}


def _clock(engine: Engine, began: float) -> dict[str, Any]:
    return {"production_s": engine.production_s, "worker_s": time.perf_counter() - began}


def engine_folder(name: str) -> str | None:
    """The folder of the engine's package, ``None`` before it is imported."""
    file = getattr(sys.modules.get(name), "__file__", None)
    return f"{Path(file).parent}/" if file else None


def classify(error: BaseException, engine: str | None) -> dict[str, Any]:
    """Whose exception it was, by the frame that decides it; ``engine`` is the
    folder of the engine's package. ``raised`` is the engine's, ``harness`` ours,
    and an import that the engine makes late and cannot have is ``unsupported``."""

    def is_engine(frame: traceback.FrameSummary) -> bool:
        return engine is not None and frame.filename.startswith(engine)

    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename not in WRAPPERS]
    ours_or_engine = [f for f in frames if f.filename.startswith(PROJECT) or is_engine(f)]
    last = ours_or_engine[-1] if ours_or_engine else frames[-1]
    if is_engine(last) and _cannot_be_had(error, engine):
        return {"status": "unsupported", "reason": f"import: {error}"}
    status = "raised" if is_engine(last) else "harness"
    text = "".join(traceback.format_exception(error))[-6000:]
    failure = _failure(status, f"{type(error).__name__}: {str(error)[:500]}")
    return failure | {"exception": type(error).__name__, "function": last.name, "traceback": text}


def _cannot_be_had(error: BaseException, engine: str) -> bool:
    """Whether the engine asked for a package, or a name in one, that is not here. What it lacks of its own is its
    own fault."""
    if isinstance(error, ModuleNotFoundError):
        return True
    return isinstance(error, ImportError) and (error.name or "").partition(".")[0] != Path(engine).name


def _failure(status: str, message: str) -> dict[str, Any]:
    return {"status": status, "message": message}


def plain(value: Any) -> Any:
    """Observed values as JSON types and NumPy arrays; tensors become lists,
    unless the adapter already made arrays of them."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if hasattr(value, "detach"):
        return value.detach().cpu().tolist()
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, np.generic):
        return value.item()
    return value


def same(a: Any, b: Any) -> bool:
    """Bitwise equality of two observations."""
    a, b = plain(a), plain(b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    return a == b or (a != a and b != b)  # NaN twice is the same answer
