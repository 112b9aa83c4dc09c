"""How a server is set up: what the command line or a serve.toml says, typed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

from annotated_types import Ge, Gt, Le, MaxLen
from pydantic import BeforeValidator, Field, Strict, model_validator

from ...core.config import Config, Flag, Size, Text
from ...core.errors import InputError

UNITS = {
    "": 1,
    "b": 1,
    **{f"{letter}{more}": 1024 ** (power + 1) for power, letter in enumerate("kmgt") for more in ("", "b", "ib")},
}


def bytes_of(given: Any) -> Any:
    """4GiB, 512MB (both count by 1,024), or a number of bytes."""
    if not isinstance(given, str):
        return given
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", given, re.IGNORECASE)
    if match is None or match[2].lower() not in UNITS:
        raise ValueError(f"{given[:40]!r} is no amount of memory; write 4GiB, 512MiB or a number of bytes")
    return int(float(match[1]) * UNITS[match[2].lower()])


def _source(given: Any) -> Any:
    return {"path": given} if isinstance(given, str) else given


class ModelSource(Config):
    """A model to be served."""

    path: Text  # a run folder, a checkpoint folder, a .gguf file or an id of the hub
    quantise: Literal["int8", "int4", "keep"] | None = None  # the weights
    adapter: Text | None = None  # a folder of peft's (LoRA) that was learnt for it


class AdapterSource(Config):
    """An adapter (LoRA) that is served as a model of its own, over the weights of another."""

    path: Text  # a folder of peft's, or a file that save_adapters wrote
    model: Text | None = None  # the name of the model that it was learnt for; None: the only one there is


Adapters: TypeAlias = dict[Text, Annotated[AdapterSource, BeforeValidator(_source)]]
Models: TypeAlias = dict[Text, Annotated[ModelSource, BeforeValidator(_source)]]


class HttpLimits(Config):
    """What one request may take."""

    body: Annotated[int, Strict(), Ge(1 << 10), Le(1 << 30)] = 8 << 20  # bytes of its body
    sound: Annotated[int, Strict(), Ge(1 << 10), Le(1 << 30)] = 25 << 20  # bytes of a body that brings a sound
    sound_seconds: Annotated[float, Strict(), Gt(0), Le(7200)] = 600.0  # that a sound may last
    arriving: Annotated[float, Strict(), Gt(0), Le(3600)] = 30.0  # seconds for its body
    reading: Annotated[float, Strict(), Gt(0), Le(3600)] = 30.0  # seconds that a client may take to read what is there
    answering: Annotated[float, Strict(), Gt(0), Le(86400)] = 600.0  # seconds until an answer is ended
    choices: Annotated[int, Strict(), Gt(0), Le(1024)] = 128  # answers, over all prompts
    texts: Annotated[int, Strict(), Gt(0), Le(4096)] = 64  # requests whose texts are being prepared, at most


class ServeConfig(Config):
    """A server: what a serve.toml holds. What the command line says goes before it."""

    models: Models = Field(default_factory=dict)  # by the names that requests give
    adapters: Adapters = Field(default_factory=dict)  # by the names that requests give
    host: Text = "127.0.0.1"  # where to listen; other machines reach it by 0.0.0.0, which needs keys
    port: Annotated[int, Strict(), Ge(0), Le(65535)] = 8000  # 0: any that is free
    allow_hosts: Annotated[tuple[Text, ...], MaxLen(64)] = ()  # names that the Host header may have
    api_key_file: Text | None = None  # one key per line
    memory: Annotated[int, Strict(), Gt(0), BeforeValidator(bytes_of)] = 1 << 30  # bytes for the states of all requests
    rows: Annotated[int, Strict(), Gt(0), Le(4096)] = 64  # requests that are written at once
    waiting: Annotated[int, Strict(), Gt(0), Le(1 << 16)] = 256  # requests that may wait for that; more are told 429
    threads: Size | None = None  # that compute; None: as many as there are cores
    quiet: Flag = False  # no line in the log for requests that were answered
    limits: HttpLimits = HttpLimits()  # of one request

    @model_validator(mode="after")
    def _adapters_have_models(self) -> Self:
        for name, adapter in self.adapters.items():
            if name in self.models:
                raise ValueError(f"a model and an adapter are called {name!r}")
            if adapter.model is None and len(self.models) != 1:
                raise ValueError(f"the adapter {name!r} does not say which model it is for; write {name}=FOLDER@MODEL")
            if adapter.model is not None and adapter.model not in self.models:
                raise ValueError(f"the adapter {name!r} is for {adapter.model!r}; models are {', '.join(self.models)}")
        return self

    @property
    def parents(self) -> dict[str, str]:
        """Which model each adapter is for."""
        return {name: one.model or next(iter(self.models)) for name, one in self.adapters.items()}


def named(paths: Iterable[str], names: Iterable[str]) -> dict[str, str]:
    """Models by name: paths are called by their last part, ids of the hub by themselves; NAME=PATH as it says."""
    found: dict[str, str] = {}
    given = [("", path) for path in paths]
    for item in names:
        name, equals, path = item.partition("=")
        if not (name and equals and path):
            raise InputError(f"--name is {item!r}; write NAME=PATH, for example small=runs/small")
        given.append((name, path))
    for name, path in given:
        own = name or _called(path)
        if own in found:
            raise InputError(f"two models are called {own!r}; tell them apart with --name NAME={path}")
        found[own] = path
    return found


def adapters_named(given: Iterable[str]) -> dict[str, dict[str, str]]:
    """NAME=FOLDER, or NAME=FOLDER@MODEL where several models are served."""
    found: dict[str, dict[str, str]] = {}
    for item in given:
        name, equals, place = item.partition("=")
        path, at, model = place.rpartition("@") if "@" in place else (place, "", "")
        if not (name and equals and path) or (at and not model):
            raise InputError(
                f"--adapter is {item!r}; write NAME=FOLDER, or NAME=FOLDER@MODEL if there are several models"
            )
        if name in found:
            raise InputError(f"two adapters are called {name!r}")
        found[name] = {"path": path, **({"model": model} if model else {})}
    return found


def merged(file: Path | None, told: Mapping[str, Any], models: Mapping[str, str], quantise: str | None) -> ServeConfig:
    """What the file says, and before it what the command line says."""
    base = {} if file is None else ServeConfig.read(file).dump()
    sources: dict[str, Any] = {**base.get("models", {}), **{name: {"path": path} for name, path in models.items()}}
    if quantise is not None:
        sources = {name: {**source, "quantise": quantise} for name, source in sources.items()}
    given = {name: value for name, value in told.items() if value not in (None, [], (), {})}
    given["adapters"] = {**base.get("adapters", {}), **told.get("adapters", {})}
    config = ServeConfig.load({**base, **given, "models": sources})
    if not config.models:
        raise InputError("no model is named; write heed serve PATH, or list [models] in serve.toml")
    return config


def _called(path: str) -> str:
    place = Path(path).expanduser()
    if not place.exists():
        return path  # an id of the hub; if it is none, loading says so
    return place.resolve().name.removesuffix(".gguf")
