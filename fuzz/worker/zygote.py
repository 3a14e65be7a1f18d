"""The first process of an engine: imports it once, then forks workers.

Importing an engine costs 10 to 18 s, so on CPU a process that has done it forks
a child per worker; shrinking a crash then costs milliseconds a death. With CUDA
nothing may be forked: ``direct`` mode serves the cases itself.

Started as ``python -m fuzz.worker.zygote SOCKET``, an inherited descriptor or, where
another program stands between and may close it, the path of one that listens. The
first message says which engine; later ones are ``fork`` (with the worker's
socket attached) and ``reap``. End of file on the socket ends everything.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import importlib.util
import os
import select
import signal
import socket
import sys
import threading
import time
from typing import Any

from fuzz import adapter as adapters_
from fuzz import wire
from fuzz.orphans import end_with_parent
from fuzz.worker import guards, litter
from fuzz.worker.engine import Engine, location
from fuzz.worker.serve import serve

STACK_SIGNAL = signal.SIGUSR1  # the supervisor asks a silent worker where it is
END_ALONE_S = 120.0  # for a process under a sanitizer to end by itself once its supervisor has gone


def main() -> None:
    inherited = sys.argv[1].isdigit()
    control = socket.socket(fileno=int(sys.argv[1])) if inherited else connected(sys.argv[1])
    hello = wire.receive(control)
    redirect(hello["log"])
    if not inherited:
        die_with_peer(control)  # the parent is a thread of that other program, which may end at any time
    elif hello["direct"]:
        end_with_parent(signal.SIGKILL)  # stopped, or in a kernel that never ends, it would not see its socket close
    try:
        engine, adapters, ready = start(hello)
    except Exception as error:
        wire.send(control, {"failed": f"{type(error).__name__}: {error}"})
        raise
    litter.set_aside()
    wire.send(control, ready)
    if hello["direct"]:
        faulthandler.register(STACK_SIGNAL, all_threads=True)
        serve(control, engine, adapters)
    else:
        loop(control, engine, adapters)


def start(hello: dict[str, Any]) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Import torch, the shims and the engine's modules."""
    began, guarded = time.perf_counter(), {}
    engine = Engine(hello["engine"], hello["version"], hello["device"])
    if hello["torch"] or importlib.util.find_spec("torch"):
        prepare_torch(engine, hello["stubs"] if hello["shims"] else None)
        guarded = guard(engine, hello.get("guards"))
    engine.compiling.install(on_gpu=engine.device != "cpu")
    for module in hello["modules"]:
        importlib.import_module(module)
    adapters = adapters_.registered(hello["engine"])
    problems, places = {}, {}
    for target in hello["targets"]:
        for key in adapters[target].needs:
            try:
                places[target] = location(engine.symbol(key)) or places.get(target)
            except adapters_.Unsupported as reason:
                problems.setdefault(target, str(reason))
    versions = {
        name: getattr(sys.modules.get(name), "__version__", None) for name in ("torch", "triton", hello["engine"])
    }
    ready = {
        "ready": True,
        "pid": os.getpid(),
        "import_s": time.perf_counter() - began,
        "unsupported": problems,
        "places": places,
        "python": sys.version.split()[0],
        "versions": versions | (gpu_versions(engine.torch) if engine.device != "cpu" else {}),
        "device": engine.torch.cuda.get_device_name(engine.device) if engine.device != "cpu" else "cpu",
        **guarded,
    }
    return engine, adapters, ready


def prepare_torch(engine: Engine, stubs: dict[str, list[str]] | None) -> None:
    """Shims (unless ``stubs`` is ``None``) and repairs that must stand before the
    engine is imported."""
    engine.torch.set_num_threads(1)
    if stubs is not None:
        from fuzz.engines import shims

        shims.install(stubs)
    if engine.device == "cpu":
        from fuzz.engines import interpreter

        interpreter.round_to_bfloat16()
        interpreter.widen_bfloat16_dot()
        interpreter.compute_in_bfloat16()
        interpreter.convert_integers_to_bfloat16()
        interpreter.annotated_integers()


def guard(engine: Engine, offer: dict[str, Any] | None) -> dict[str, str]:
    """Lay the device's memory between guards, before anything there is allocated, and say
    ``on`` or why not. A CPU is not asked."""
    if engine.device == "cpu" or offer is None:
        return {}
    found = guards.install(engine.torch, offer["library"], engine.device) if offer["library"] else offer["reason"]
    if isinstance(found, str):
        return {"guards": found}
    engine.guards = found
    return {"guards": "on"}


def gpu_versions(torch: Any) -> dict[str, str]:
    """The CUDA that torch is built for, and the driver where NVML says it."""
    found, text = {"cuda": torch.version.cuda}, ctypes.create_string_buffer(96)
    with contextlib.suppress(OSError, AttributeError):  # a container need not have the library
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2() == 0 and nvml.nvmlSystemGetDriverVersion(text, len(text)) == 0:
            found["driver"] = text.value.decode(errors="replace")
    return found


def loop(control: socket.socket, engine: Any, adapters: dict[str, Any]) -> None:
    """Fork and reap on request until the supervisor goes away."""
    children: set[int] = set()
    try:
        while True:
            message, fds = receive_with_fds(control)
            if message["op"] == "fork":
                pid = os.fork()
                if pid == 0:
                    control.close()
                    child(socket.socket(fileno=fds[0]), message["log"], engine, adapters)
                os.close(fds[0])
                children.add(pid)
                wire.send(control, {"pid": pid})
            elif message["op"] == "reap":
                _, status = os.waitpid(message["pid"], 0)
                children.discard(message["pid"])
                wire.send(control, {"exit": os.waitstatus_to_exitcode(status)})
    except wire.Closed:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def receive_with_fds(control: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """A ``fork`` message arrives as one byte that carries the descriptor, then
    the message itself."""
    marker, fds, _, _ = socket.recv_fds(control, 1, 1)
    if not marker:
        raise wire.Closed
    return wire.receive(control), fds


def child(sock: socket.socket, log: str, engine: Any, adapters: dict[str, Any]) -> None:
    """The forked worker. Never returns: no cleanup of the zygote may run here."""
    code = 1
    try:
        redirect(log)
        end_with_parent(signal.SIGKILL)
        faulthandler.enable()
        faulthandler.register(STACK_SIGNAL, all_threads=True)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the supervisor's business
        serve(sock, engine, adapters)
        code = 0
    finally:
        os._exit(code)


def connected(path: str) -> socket.socket:
    """The supervisor's socket, by its path."""
    control = socket.socket(socket.AF_UNIX)
    control.connect(path)
    return control


def die_with_peer(control: socket.socket) -> None:
    """Kill this process when the supervisor has gone and a kernel that never ends keeps
    it from seeing that; one that sees it has time to end by itself."""

    def watch() -> None:
        gone = select.poll()
        gone.register(control, select.POLLRDHUP)
        gone.poll()
        time.sleep(END_ALONE_S)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def redirect(log: str) -> None:
    """Send stdout and stderr to ``log``: whatever production prints is evidence,
    never protocol."""
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)
    devnull = os.open(os.devnull, os.O_RDONLY)
    os.dup2(devnull, 0)
    os.close(devnull)


if __name__ == "__main__":
    main()
