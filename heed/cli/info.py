"""The command that tells what a model is: info."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..core.errors import counted
from .options import HubOptions, Json, Model, print_json, spread

if TYPE_CHECKING:
    from ..runs.info import Info, Layers, Memory


@spread
def info(path: Model, hub: HubOptions, as_json: Json = False) -> None:
    """What a run, a checkpoint or a GGUF file is: sizes, state per token, what it can do. Reads no weights."""
    from ..runs.info import info as found

    told = replace(found(hub.resolve(path)), path=path)
    if as_json:
        print_json(told.plain())
        return
    from rich.console import Console
    from rich.markup import escape

    from .settings import grid

    table = grid()
    for name, text in _facts(told):
        if text:
            table.add_row(f"  [dim]{name}[/]", escape(text))
    Console().print(f"[bold]{escape(told.path)}[/] is {told.what}", table, sep="\n", highlight=False)


def _facts(told: Info) -> Iterator[tuple[str, str]]:
    stored = ", ".join(told.stored) or "no weights yet"
    yield "model", f"{told.family}: heed's {told.model} behind a {told.pipeline}"
    yield "parameters", f"{told.parameters:,} ({stored}), {size(told.bytes)} on disk"
    for layers in told.layers:
        yield f"layers {layers.place}".strip(), _layers(layers)
    yield "vocabulary", "" if told.vocabulary is None else counted(told.vocabulary, "token")
    yield "context", "" if told.context is None else counted(told.context, "token")
    yield "state", "none: it does not stream" if told.memory is None else _memory(told.memory, told.context)
    yield "tokenizer", told.tokenizer or "none"
    yield "chat", "has a template: heed run MODEL --chat" if told.chat_template else ""
    yield "can", ", ".join(told.can)
    yield "edits", "; ".join(told.edits)
    yield from _training(told.training or {})


def _layers(layers: Layers) -> str:
    text = f"{counted(layers.depth, 'block')} of width {layers.width}: {', '.join(layers.mixers)}"
    if layers.heads is None:
        return text
    shared = layers.kv_heads not in (None, layers.heads)
    return f"{text}, {counted(layers.heads, 'head')}" + (f" ({layers.kv_heads} of keys and values)" if shared else "")


def _memory(memory: Memory, context: int | None) -> str:
    """The state in bytes, and its law."""
    told = []
    if memory.per_token:
        full = "" if memory.later == memory.per_token else ", in windows"
        told.append(f"{counted(memory.per_token, 'byte')} per token{full}")
    if memory.per_source:
        told.append(f"{counted(memory.per_source, 'byte')} per source token")
    if memory.fixed:
        told.append(f"{counted(memory.fixed, 'byte')} whatever the length")
    if context and memory.per_token and memory.later == memory.per_token:
        told.append(f"{size(memory.fixed + context * memory.per_token)} at {counted(context, 'token')}")
    return f"{'; '.join(told) or 'nothing'} ({memory.law})"


def _training(told: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if not told:
        return
    data = told["data"]
    yield (
        "data",
        " ".join([data["kind"], *(f"{name}={data[name]}" for name in ("train", "valid", "test") if name in data)]),
    )
    yield "base", told.get("base", "")
    yield "trained", ", ".join([counted(told["steps"], "step"), *_numbers(told["last"])])
    for name, metrics in told["metrics"].items():
        yield name, ", ".join(_numbers(metrics))


def _numbers(metrics: Mapping[str, Any]) -> Iterator[str]:
    for name, value in metrics.items():
        yield f"{name} {value:,.4g}" if isinstance(value, float) else f"{name} {value}"


def size(count: int) -> str:
    """Bytes for people."""
    for unit, much in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= much:
            return f"{count / much:.3g} {unit}"
    return counted(count, "byte")
