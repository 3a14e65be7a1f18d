"""From an engine's name to what a session needs to start it."""

from __future__ import annotations

from pathlib import Path

from fuzz import adapter as adapters
from fuzz.engines.home import Progress
from fuzz.engines.kernel_caches import with_caches
from fuzz.engines.provision import EngineInstall, provision
from fuzz.engines.spec import EngineSpec
from fuzz.supervisor import Launch

CHECKOUT_VERSION = "checkout"


def launch_for(
    spec: EngineSpec,
    *,
    device: str = "cpu",
    python: Path | None = None,
    offline: bool = False,
    progress: Progress = lambda text, fraction: None,
) -> Launch:
    """Provision ``spec`` where needed and say how its worker is started.

    ``python`` is the user's own interpreter for a ``local`` engine. Raises
    EngineError.
    """
    install = provision(spec, offline=offline, progress=progress, python=python, device=device)
    return from_install(install, device)


def from_install(install: EngineInstall, device: str = "cpu") -> Launch:
    """The launch of an engine that is already there."""
    name, env = install.spec.name, install.environment()
    return Launch(
        engine=name,
        version=install.record["version"] or CHECKOUT_VERSION,
        python=str(install.python),
        env=env if device == "cpu" else with_caches(env, install.python),
        stubs={module: list(names) for module, names in install.record["stubs"].items()},
        modules=tuple(adapters.modules(name)),
        targets=tuple(adapters.load(name)),
        device=device,
        shims=not install.spec.local and (install.spec.bundle is None or device == "cpu"),
        torch=name in adapters.BUILT_IN,
        packages=adapters.installed_packages(name),
    )
