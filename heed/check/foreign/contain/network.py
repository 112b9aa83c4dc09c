"""No downloads: foreign code opens no connection, and starts no program that would."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import PurePath
from typing import Any

from .restore import replaced

HERE = {None, "", "localhost", "127.0.0.1", "::1", "0.0.0.0", "::"}
FETCHES = {"wget", "curl", "gdown", "kaggle", "huggingface-cli", "hf", "aria2c", "gsutil", "aws"}
INSTALLS = {"pip", "pip3", "conda", "mamba", "uv", "apt", "apt-get", "npm"}


class NoNetwork(OSError):
    """A connection that was asked for and not opened."""


@contextmanager
def offline(tell: Callable[[str], None]) -> Iterator[None]:
    """Refuse connections to other machines, and programs that fetch or install; what was refused is told."""

    def refused(what: str) -> NoNetwork:
        tell(f"no network: {what} was refused")
        return NoNetwork(
            f"heed check lets nothing be downloaded or installed ({what}); do it before, or give what it needs"
        )

    found, connect, connect_ex = socket.getaddrinfo, socket.socket.connect, socket.socket.connect_ex
    start, system = subprocess.Popen.__init__, os.system

    def getaddrinfo(host: Any, *args: Any, **options: Any) -> Any:
        if not _here(host):
            raise refused(f"a connection to {_text(host)}")
        return found(host, *args, **options)

    def connected(self: Any, address: Any) -> Any:
        if isinstance(address, tuple) and not _here(address[0]):
            raise refused(f"a connection to {_text(address[0])}")
        return connect(self, address)

    def connected_ex(self: Any, address: Any) -> Any:
        if isinstance(address, tuple) and not _here(address[0]):
            raise refused(f"a connection to {_text(address[0])}")
        return connect_ex(self, address)

    def started(self: Any, args: Any, *rest: Any, **options: Any) -> None:
        if fetches(args):
            raise refused(_command(args))
        start(self, args, *rest, **options)

    def ordered(command: Any) -> int:
        if fetches(command):
            raise refused(_command(command))
        return system(command)

    with ExitStack() as stack:
        stack.enter_context(replaced(socket, getaddrinfo=getaddrinfo))
        stack.enter_context(replaced(socket.socket, connect=connected, connect_ex=connected_ex))
        stack.enter_context(replaced(subprocess.Popen, __init__=started))
        stack.enter_context(replaced(os, system=ordered))
        yield


def fetches(command: Any) -> bool:
    """Whether a command, a line for the shell or a list of words, downloads or installs."""
    line = isinstance(command, str | bytes)
    parts = re.split(r"[;&|\n]+", _text(command)) if line else [None]
    for part in parts:
        words = _words(part) if part is not None else [_text(word) for word in command]
        plain = [PurePath(word).name for word in words if not re.match(r"^(-.*|\w+=.*|sudo)$", word)][:3]
        if plain and (plain[0] in FETCHES or INSTALLS & set(plain[:2])):
            return True
        if plain and plain[0] == "git" and {"clone", "pull", "fetch", "submodule"} & set(plain):
            return True
    return False


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:  # an open quote
        return line.split()


def _command(command: Any) -> str:
    words = command if isinstance(command, str | bytes) else " ".join(_text(word) for word in command)
    return f"`{_text(words)[:80]}`"


def _here(host: Any) -> bool:
    return host is None or _text(host) in HERE


def _text(word: Any) -> str:
    return os.fsdecode(word) if isinstance(word, bytes | os.PathLike) else str(word)
