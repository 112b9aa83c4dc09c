"""A chat as a person has it: in a terminal, with keys; and as a program has it: lines in, lines out."""

from __future__ import annotations

import json
import os
import re
import select
import stat
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import transformers

from heed.cli.chat import history_file
from tests.cli.support import Shell
from tests.pipelines.test_checkpoint import SMALL, made

HF: Any = transformers
CTRL_C, CTRL_D, UP = b"\x03", b"\x04", b"\x1b[A"
PATIENCE = 60.0  # seconds that a busy machine may take

# A chat with a model of no weights: it says back what it was told, with the number of messages; "slow" has no end.
ECHO = """
import sys, time
from types import SimpleNamespace
from heed.cli.chat import Chat, converse

def chatting(messages, config):
    yield f"{len(messages)}:"
    if messages[-1]["content"] == "slow":
        while True:
            time.sleep(0.02)
            yield "."
    yield repr(messages[-1]["content"])

chat = Chat(SimpleNamespace(chatting=chatting), None, None)
converse(chat, history=sys.argv[1] == "kept", banner="hello")
print("left")
"""


# Makes the terminal the process's own, so that Ctrl-C is a signal to it, and becomes the program.
OWNED = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"


class Terminal:
    """A program in a terminal: what it shows, and the keys that are pressed."""

    def __init__(self, screen: int) -> None:
        self.screen, self.shown = screen, ""

    def sees(self, text: str) -> str:
        """Wait until this is shown; what was shown until then, without the codes of a terminal."""
        until = time.monotonic() + PATIENCE
        while text not in self.shown:
            assert time.monotonic() < until, f"{text!r} is not in {self.shown!r}"
            if select.select([self.screen], [], [], 0.2)[0]:
                try:
                    self.shown += re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", os.read(self.screen, 4096).decode())
                except OSError:  # the program has ended
                    assert text in self.shown, f"{text!r} is not in {self.shown!r}"
        before, _, self.shown = self.shown.partition(text)
        return before + text

    def leave(self) -> None:
        """Ctrl-D at the prompt: before it the keys are not the program's yet, and this one would be lost."""
        self.sees("> ")
        self.press(CTRL_D)

    def press(self, *keys: str | bytes) -> None:
        for key in keys:
            os.write(self.screen, key if isinstance(key, bytes) else key.encode())


@contextmanager
def terminal(words: list[str], **environment: str) -> Iterator[Terminal]:
    """A process with a terminal of its own, whose keys reach it."""
    screen, ours = os.openpty()
    settings = termios.tcgetattr(ours)
    settings[3] |= termios.NOFLSH  # else Ctrl-C also discards what is shown and not yet read: now and then a prompt
    termios.tcsetattr(ours, termios.TCSANOW, settings)
    child = subprocess.Popen(
        [sys.executable, "-c", OWNED, sys.executable, *words],
        stdin=ours,
        stdout=ours,
        stderr=ours,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm", **environment},
    )
    os.close(ours)
    try:
        yield Terminal(screen)
    finally:
        os.close(screen)  # hangs up
        child.wait(PATIENCE)


Begin = Callable[..., Any]


@pytest.fixture
def echo(tmp_path: Path) -> Begin:
    (tmp_path / "echo.py").write_text(ECHO, encoding="utf-8")
    return lambda kept="kept": terminal([str(tmp_path / "echo.py"), kept], XDG_STATE_HOME=str(tmp_path / "state"))


def test_messages_commands_and_the_end(echo: Begin, tmp_path: Path) -> None:
    with echo() as chat:
        chat.sees("hello")
        chat.sees("> ")
        chat.press("one\n")
        chat.sees("1:'one'")
        chat.press("two\\\nlines\n")  # a backslash goes on in the next line
        chat.sees("3:'two\\nlines'")
        chat.press("//etc\n")
        chat.sees("5:'/etc'")
        chat.press("/help\n")
        chat.sees("/reset")
        chat.sees("Ctrl-C stops an answer")
        chat.press("/rest\n")
        chat.sees("heed: there is no command /rest; did you mean reset?")
        chat.press(f"/save {tmp_path}/said.json\n")
        chat.sees("said.json holds 6 messages")
        chat.press(f"/save {tmp_path}/said.json\n")
        chat.sees("exists already; name another file")
        chat.press("/system be brief\n")
        chat.sees("with a system prompt")
        chat.press("three\n")
        chat.sees("2:'three'")  # the system prompt and this
        chat.press("/reset\n")
        chat.sees("forgotten")
        chat.press("four\n")
        chat.sees("2:'four'")
        chat.press("/exit\n")
        chat.sees("left")
    said = json.loads((tmp_path / "said.json").read_text(encoding="utf-8"))
    assert [message["role"] for message in said] == ["user", "assistant"] * 3
    assert said[2]["content"] == "two\nlines"


def test_ctrl_c_stops_the_answer_and_not_the_chat(echo: Begin) -> None:
    with echo() as chat:
        chat.sees("> ")
        chat.press("slow\n")
        chat.sees("1:..")
        chat.press(CTRL_C)
        chat.sees("[stopped]")
        chat.press("next\n")
        chat.sees("3:'next'")  # what was said by then was said
        chat.sees("> ")
        chat.press("half a li")
        chat.sees("half a li")
        time.sleep(
            0.5
        )  # a signal between a key and waiting for the next is noticed with the next key (CPython's input)
        chat.press(CTRL_C)  # clears the line
        chat.leave()
        chat.sees("left")


def test_history_is_kept_for_the_user_alone(echo: Begin, tmp_path: Path) -> None:
    file = tmp_path / "state" / "heed" / "chat_history"
    with echo() as chat:
        chat.sees("> ")
        chat.press("remember me\n")
        chat.sees("1:'remember me'")
        chat.leave()
        chat.sees("left")
    assert "remember me" in file.read_text(encoding="utf-8")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with echo() as chat:
        chat.sees("> ")
        chat.press(UP, "\n")
        chat.sees("1:'remember me'")
        chat.leave()
        chat.sees("left")
    before = file.read_bytes()
    with echo("not") as chat:
        chat.sees("> ")
        chat.press("a secret\n")
        chat.sees("1:'a secret'")
        chat.leave()
        chat.sees("left")
    assert file.read_bytes() == before


def test_the_state_folder_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/some/where")
    assert history_file() == Path("/some/where/heed/chat_history")
    monkeypatch.setenv("XDG_STATE_HOME", "not/absolute")  # which the standard says to pass over
    monkeypatch.setenv("HOME", "/home/me")
    assert history_file() == Path("/home/me/.local/state/heed/chat_history")


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    config = HF.LlamaConfig(**SMALL, intermediate_size=40, num_key_value_heads=2, bos_token_id=1, eos_token_id=2)
    made(HF.LlamaForCausalLM(config), tmp_path / "llama", framed=False, chat=True)
    return tmp_path / "llama"


def test_a_real_model_in_a_terminal(llama: Path, tmp_path: Path) -> None:
    words = ["-m", "heed", "run", str(llama), "--chat", "--limit", "3", "--no-history"]
    with terminal(words, XDG_STATE_HOME=str(tmp_path / "state"), COLUMNS="200") as chat:
        banner = chat.sees("> ")
        assert "llama · 10,344 parameters in float32 on cpu · context of 2,048 tokens · its own" in banner
        assert "Ctrl-D leaves" in banner
        chat.press("the cat\n")
        chat.leave()
    assert not (tmp_path / "state").exists()


def test_lines_in_lines_out_without_a_banner(llama: Path, heed: Shell) -> None:
    told = heed("run", llama, "--chat", "--limit", "3", "the cat", "the dog")
    assert len(told.out.splitlines()) == 2
    assert "Ctrl-D" not in told.out


def test_a_chat_without_a_template_is_refused_before_weights_are_read(llama: Path, heed: Shell) -> None:
    (llama / "tokenizer_config.json").write_text("{}", encoding="utf-8")
    (llama / "model.safetensors").write_bytes(b"never opened")
    told = heed("run", llama, "--chat", code=2).err
    assert "--chat needs a chat template" in told
    assert "has none: it was not trained to chat; leave --chat out" in told
