"""The one context in which everything foreign happens: imported, built and called."""

from __future__ import annotations

import argparse
import io
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TextIO

from .capture import Output, captured
from .network import offline
from .restore import replaced, restored


class Contained:
    """What foreign code did, or tried to do, to the process."""

    def __init__(self, stdin: TextIO | None) -> None:
        self.stdin = stdin  # the real one: foreign code sees an empty one
        self.output = Output()
        self.missed: list[str] = []  # uses of what is not installed
        self._told: dict[str, None] = {}

    def tell(self, words: str) -> None:
        """Something that the report must say, once."""
        self._told[words] = None

    @property
    def told(self) -> tuple[str, ...]:
        """What was told so far."""
        return tuple(self._told)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was told, and, when it is over, the first lines that were printed."""
        printed = self.output.note
        return (*self.told, *([printed] if printed else []))


_lock = threading.RLock()  # the process has one standard output
_active: list[Contained] = []


@contextmanager
def contained() -> Iterator[Contained]:
    """Capture output, refuse downloads and questions, put settings back. Within another one, that one goes on."""
    with _lock, ExitStack() as stack:
        if _active:
            yield _active[-1]
            return
        process = Contained(sys.stdin)
        _active.append(process)
        stack.callback(_active.remove, process)
        process.output = stack.enter_context(captured())
        stack.enter_context(offline(process.tell))
        stack.enter_context(restored())
        os.environ["TORCHDYNAMO_DISABLE"] = "1"  # what torch.compile would make gives the same, minutes later
        stack.enter_context(_unasked(process))
        yield process


def current() -> Contained | None:
    """The context that is active, if one is."""
    return _active[-1] if _active else None


@contextmanager
def _unasked(process: Contained) -> Iterator[None]:
    """Nobody answers: no input, no debugger, an empty command line whatever it requires; nothing ends the process."""

    here, end = os.getpid(), os._exit

    def leave(code: int = 0) -> None:
        if os.getpid() != here:  # a child that was forked
            end(code)
        raise SystemExit(code)

    def passed(*args: Any, **options: Any) -> None:
        process.tell("a breakpoint was passed over")

    def parse(self: argparse.ArgumentParser, args: Any = None, namespace: Any = None) -> Any:
        if args is None:
            _waive(self, process)
        return parse_known(self, args, namespace)

    parse_known = argparse.ArgumentParser.parse_known_args
    sys.argv[1:] = []
    with (
        replaced(sys, stdin=io.StringIO(), breakpointhook=passed),
        replaced(os, _exit=leave),
        replaced(argparse.ArgumentParser, parse_known_args=parse),
    ):
        yield


def _waive(parser: argparse.ArgumentParser, process: Contained) -> None:
    """Nothing that a command line must hold is asked for: it is None."""
    needed = [action for action in parser._actions if action.required]
    for action in needed:
        action.required = False
        if not action.option_strings and action.nargs is None:
            action.nargs = argparse.OPTIONAL
        elif not action.option_strings and action.nargs == argparse.ONE_OR_MORE:
            action.nargs = argparse.ZERO_OR_MORE
    if needed:
        names = ", ".join("/".join(action.option_strings) or action.dest for action in needed)
        process.tell(f"its command line was read as empty: {names} set to None")
