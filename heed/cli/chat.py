"""A conversation on the command line: a line from the user, an answer as it is written, and so on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

from .options import Wish, print_json

if TYPE_CHECKING:
    from ..pipelines import Pipeline


def talk(ready: Pipeline, wish: Wish, lines: Iterable[str], system: str | None, *, as_json: bool) -> None:
    """Every line is answered in the light of all before it; an empty line is passed over."""
    from ..pipelines.loaded import Continuer

    if not isinstance(ready, Continuer):
        raise typer.BadParameter(f"--chat needs a language model with a chat template; this is {ready.what}")
    ask = wish.ask(ready.task)
    messages = [] if system is None else [{"role": "system", "content": system}]
    for line in lines:
        if not line.strip():
            continue
        messages.append({"role": "user", "content": line})
        pieces = list[str]()
        for piece in ready.chatting(messages, ask):
            pieces.append(piece)
            if not as_json:
                print(piece, end="", flush=True)
        messages.append({"role": "assistant", "content": "".join(pieces)})
        print_json(messages[-1], indent=None) if as_json else print(flush=True)
