"""Set what the engine's checkpoint rule reads, without a model.

Every release reads the track interval, the page and the chunk from a published
configuration object; only where it is published changed. The engine's own object
is used, at its boundary for a model path of "dummy", so that predicates such as
"is the extra buffer enabled" are the shipped ones.

The trade: publishing costs 0.5 to 1.5 ms, more than most calls under test, so
the publication of a process stays in place until other settings are asked for,
and only the interval is scoped where a release can do that for microseconds. A
target that reads settings must therefore always enter ``settings``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from fuzz.adapter import Unsupported

NEEDS = ("settings.config",)
STRATEGY = {False: "no_buffer", True: "extra_buffer"}

_published: dict[str, Any] = {}


@contextmanager
def settings(
    engine: Any,
    *,
    interval: int,
    page: int = 1,
    chunk: int | None = None,
    extra_buffer: bool = False,
    **fields: Any,
) -> Iterator[Any]:
    """Publish the settings for the calls inside and yield the configuration object.

    interval      ``mamba_track_interval``, in tokens
    page          ``page_size``, KV tokens a page
    chunk         state chunk in tokens; None is 1 where a release can be told and
                  its own value where it cannot
    extra_buffer  whether checkpoints are tracked at all (the radix cache strategy)
    fields        further configuration fields by their name in this release

    With page and chunk 1 every release's checkpoint grid is the interval. Raises
    Unsupported for a chunk that this release does not let anybody set.
    """
    wanted = {"page_size": page, engine.fact("settings.strategy_field"): STRATEGY[extra_buffer], **fields}
    wanted |= _chunk(engine, chunk)
    how = engine.fact("settings.publication")
    with ExitStack() as scoped:
        if how != "bags":
            wanted["mamba_track_interval"] = interval
        config = _PUBLISH[how](engine, wanted)
        if how == "bags":
            scoped.enter_context(engine.symbol("settings.exec")().mamba.override(mamba_track_interval=interval))
        yield config


def _chunk(engine: Any, chunk: int | None) -> dict[str, int]:
    if engine.fact("settings.chunk") == "settable":
        return {"_mamba_cache_chunk_size": chunk or 1}
    if chunk is not None:
        raise Unsupported("the state chunk of this version cannot be set")
    return {}


def _publish_global(engine: Any, wanted: dict[str, Any]) -> Any:
    """One mutable configuration object behind a module variable."""
    if not _published:
        config = engine.symbol("settings.config")(model_path="dummy")
        engine.symbol("settings.set_global")(config)
        _published.update(config=config, defaults=dict(vars(config)), fields=())
    config = _published["config"]
    for name in _published["fields"]:
        if name in _published["defaults"]:
            setattr(config, name, _published["defaults"][name])
        else:
            vars(config).pop(name, None)
    for name, value in wanted.items():
        if not name.startswith("_") and name not in _published["defaults"]:
            raise AttributeError(f"the configuration of this version has no field {name!r}")
        setattr(config, name, value)
    _published["fields"] = tuple(wanted)
    return config


def _publish_context(engine: Any, wanted: dict[str, Any]) -> Any:
    """The engine's scoped override, kept while the settings stay the same."""
    if _published.get("wanted") != wanted:
        if _published:
            _published.pop("override").restore()
            _published.clear()
        override = engine.symbol("settings.context")().override_server_args(**wanted)
        _published.update(config=override.install(), override=override, wanted=wanted)
    return _published["config"]


_PUBLISH = {"global": _publish_global, "context": _publish_context, "bags": _publish_context}
