"""A conversation on the command line: a line from the user, an answer as it is written, and so on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

from .options import GenerationOptions, print_json

if TYPE_CHECKING:
    from ..pipelines import Pipeline


def talk(
    pipeline: Pipeline, options: GenerationOptions, lines: Iterable[str], system: str | None, *, as_json: bool
) -> None:
    """Every line is answered in the light of all before it; an empty line is passed over."""
    from ..pipelines import TextGeneration

    if not isinstance(pipeline, TextGeneration) or not pipeline.framed:
        raise typer.BadParameter(f"--chat needs a language model with a chat template; this is {pipeline.what}")
    config = options.config(pipeline.strategy)
    messages = [] if system is None else [{"role": "system", "content": system}]
    for line in lines:
        if not line.strip():
            continue
        messages.append({"role": "user", "content": line})
        pieces = list[str]()
        for piece in pipeline.chatting(messages, config):
            pieces.append(piece)
            if not as_json:
                print(piece, end="", flush=True)
        messages.append({"role": "assistant", "content": "".join(pieces)})
        print_json(messages[-1], indent=None) if as_json else print(flush=True)
