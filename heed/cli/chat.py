"""A chat in a terminal: a prompt mark, commands, history, answers that can be stopped."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import InputError, counted
from .options import print_json

if TYPE_CHECKING:
    from torch import nn

    from ..pipelines import GenerationConfig, TextGeneration

MARK, MORE = "> ", ". "  # before a message, and before its further lines
REMEMBERED = 1000  # lines of history
HELP = """\
/help           this
/reset          forget all that was said
/system TEXT    the system prompt; without TEXT: none. Forgets what was said
/save FILE      write the messages as JSON
/exit           leave; so does Ctrl-D
A line that ends with \\ goes on in the next; Ctrl-C stops an answer.
A message that begins with / is sent if it begins with //."""


class Chat:
    """What was said so far, and how the next answer is made."""

    def __init__(self, pipeline: TextGeneration, config: GenerationConfig, system: str | None) -> None:
        self.pipeline, self.config, self.system = pipeline, config, system
        self.messages: list[dict[str, str]] = []
        self.reset()

    def reset(self) -> None:
        """Forget all that was said; the system prompt stays."""
        self.messages = [] if self.system is None else [{"role": "system", "content": self.system}]

    def answer(self, text: str, show: Callable[[str], None]) -> dict[str, str]:
        """The model's next message, shown piece by piece. Ctrl-C ends it early; what was said by then was said."""
        self.messages.append({"role": "user", "content": text})
        pieces = list[str]()
        try:
            for piece in self.pipeline.chatting(self.messages, self.config):
                pieces.append(piece)
                show(piece)
        except KeyboardInterrupt:
            if not sys.stdin.isatty():  # nobody is there to go on
                raise
            show(" [stopped]")
        except BaseException:
            self.messages.pop()  # what could not be answered was not said
            raise
        self.messages.append({"role": "assistant", "content": "".join(pieces)})
        return self.messages[-1]


def talk(chat: Chat, lines: Iterable[str], *, as_json: bool) -> None:
    """Line by line: each answer has all messages before it as its prompt; an empty line is passed over."""
    for line in lines:
        if line.strip():
            said = chat.answer(line, _silent if as_json else _show)
            print_json(said, indent=None) if as_json else print(flush=True)


def converse(chat: Chat, *, history: bool, banner: str) -> None:
    """In a terminal, until Ctrl-D or /exit."""
    if banner:
        print(banner, flush=True)
    with _history(history):
        for text in _typed():
            try:
                if text.startswith("/") and not text.startswith("//"):
                    if not _obeyed(chat, text):
                        return
                    continue
                chat.answer(text.removeprefix("/") if text.startswith("//") else text, _show)
                print(flush=True)
            except (InputError, OSError) as error:  # a chat goes on after a mistake
                print(f"heed: {error}", file=sys.stderr, flush=True)


def banner(path: Path, model: nn.Module) -> str:
    """What the chat is with, and how to leave it."""
    from ..runs.info import source

    some = next(model.parameters())
    size = sum(parameter.numel() for parameter in model.parameters())
    context = source(path).context
    about = [
        path.resolve().name,
        f"{size:,} parameters in {str(some.dtype).removeprefix('torch.')} on {some.device}",
        *([] if context is None else [f"context of {counted(context, 'token')}"]),
        "its own chat template",
    ]
    return f"{' · '.join(about)}\n/help lists commands, Ctrl-C stops an answer, Ctrl-D leaves"


def _obeyed(chat: Chat, line: str) -> bool:
    """Do what a command says; whether the chat goes on."""
    name, _, rest = line[1:].partition(" ")
    rest = rest.strip()
    match name:
        case "help":
            print(HELP, flush=True)
        case "reset":
            chat.reset()
            print("All that was said is forgotten.", flush=True)
        case "system":
            chat.system = rest or None
            chat.reset()
            print(f"The chat begins anew, {'with' if rest else 'without'} a system prompt.", flush=True)
        case "save":
            _save(chat, rest)
        case "exit" | "quit":
            return False
        case _:
            from ..core.config import nearest

            raise InputError(f"there is no command /{name}{nearest(name, ('help', 'reset', 'system', 'save', 'exit'))}")
    return True


def _save(chat: Chat, name: str) -> None:
    if not name:
        raise InputError("/save needs the name of a file: /save chat.json")
    path = Path(name).expanduser()
    if path.exists():
        raise InputError(f"{path} exists already; name another file")
    with path.open("x", encoding="utf-8") as file:
        json.dump(chat.messages, file, ensure_ascii=False, indent=1)
        file.write("\n")
    print(f"{path} holds {counted(len(chat.messages), 'message')}", flush=True)


def _typed() -> Iterator[str]:
    """What the user types, message by message; further lines after a backslash. Ctrl-C clears the line."""
    while True:
        try:
            line = input(MARK)
            while line.endswith("\\"):
                line = line[:-1] + "\n" + input(MORE)
        except EOFError:
            print(flush=True)
            return
        except KeyboardInterrupt:
            print(flush=True)
            continue
        if line.strip():
            yield line.strip()


@contextmanager
def _history(kept: bool) -> Iterator[None]:
    """Arrow keys bring back what was typed, also in earlier chats if it is to be kept; no one else may read it."""
    try:
        import readline
    except ImportError:  # a Python without it still chats
        yield
        return
    readline.set_completer(lambda text, state: _commands(text)[state] if state < len(_commands(text)) else None)
    readline.set_completer_delims(" ")
    readline.parse_and_bind("tab: complete")
    path = history_file()
    if kept:
        with suppress(OSError):
            readline.read_history_file(path)
    readline.set_history_length(REMEMBERED)
    try:
        yield
    finally:
        if kept:
            with suppress(OSError):  # a home that cannot be written to
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                path.touch(mode=0o600)
                readline.write_history_file(path)
                path.chmod(0o600)


def history_file() -> Path:
    """In the user's state folder."""
    home = os.environ.get("XDG_STATE_HOME", "")
    return (Path(home) if home.startswith("/") else Path.home() / ".local" / "state") / "heed" / "chat_history"


def _commands(text: str) -> list[str]:
    return [name for name in ("/help", "/reset", "/system ", "/save ", "/exit") if name.startswith(text)]


def _show(piece: str) -> None:
    print(piece, end="", flush=True)


def _silent(_: str) -> None:
    return
