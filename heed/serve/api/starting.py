"""A server from its settings: keys and socket first, then the models, then requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ...runs import load
from .. import Engine, Limits
from .adapters import with_adapter
from .app import Application
from .service import Service
from .settings import ServeConfig
from .wire.guard import Guard, Keys
from .wire.log import Log
from .wire.server import listening, run

SIZES = (256, 1024, 4096, 16384)  # tokens of a request, for which it is told how many fit

if TYPE_CHECKING:
    from ...pipelines import Pipeline
    from .. import ModelInfo


def serve(config: ServeConfig, version: str, say: Callable[[str], None]) -> None:
    """Serve until a signal ends it: the first one drains, the second one ends at once."""
    keys = Keys.read(None if config.api_key_file is None else Path(config.api_key_file))
    guard = Guard.of(keys, config.host, config.allow_hosts)  # what is wrong with these is told before models are read
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    with listening(config.host, config.port) as place:
        limits = Limits(memory=config.memory, rows=config.rows, waiting=config.waiting)
        with Engine(loaded(config), limits) as engine:
            service = Service(
                engine, guard, version, config.limits, log=Log(quiet=config.quiet), parents=config.parents
            )
            host, port = place.getsockname()[:2]
            for line in told(engine.models):
                say(line)
            keyed = f"{len(keys.owners)} keys" if keys.owners else "no keys: this machine alone"
            shown = f"[{host}]" if ":" in host else host
            say(f"serving at http://{shown}:{port} ({keyed}); Ctrl-C ends")
            try:
                run(Application(service), place, draining(service), config.limits.answering)
            finally:
                service.close()


def loaded(config: ServeConfig) -> Mapping[str, Pipeline]:
    """The models, each under its name."""
    found = {}
    for name, source in config.models.items():
        adapter = None if source.adapter is None else Path(source.adapter)
        found[name] = load(source.path, quantise=source.quantise, adapter=adapter)
    for name, base in config.parents.items():
        found[name] = with_adapter(found[base], config.models[base], config.adapters[name])
    return found


def told(models: Mapping[str, ModelInfo]) -> list[str]:
    """What is served, and how much of it fits into the memory."""
    lines = []
    for name, info in models.items():
        context = "any length" if info.context is None else f"{info.context:,} tokens"
        exact = "exact under load" if info.exact else "the same up to rounding under load"
        lines.append(f"{name}: {info.executor}, {exact}; context: {context}")
        sizes = [size for size in SIZES if info.context is None or size <= info.context] or [info.context or 1]
        fits = ", ".join(f"{info.rows_that_fit(size):,} of {size:,} tokens" for size in sizes)
        lines.append(f"  requests that fit into {info.budget:,} bytes at once: {fits}")
    return lines


def draining(service: Service) -> Callable[[], None]:
    """What the first signal does: nothing new is taken, what runs is finished."""

    def begin() -> None:
        service.draining = True
        service.log.event("draining")

    return begin
