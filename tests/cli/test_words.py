"""What the command line makes of wrong words, and what the tab key offers."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import get_args

import pytest

from heed.catalogue import TABLES, names
from heed.cli import OTHERS, app, complete
from heed.runs.recipe import shipped
from heed.weights.edits.quantised import Bits
from tests.cli.support import Shell


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("verfy",), "heed: there is no command 'verfy'; did you mean verify?"),
        (("chat",), "heed: there is no command 'chat'; did you mean heed run MODEL --chat?"),
        (("run",), "heed: missing argument 'MODEL'; heed run --help tells more"),
        (("run", "x", "--temprature", "1"), "--temperature"),
        (("run", "x", "--top-k", "y"), "heed: invalid value for '--top-k'"),
        (("run", "x", "--system", "y"), "heed: --system is what a chat begins with; add --chat"),
        (("info",), "heed: missing argument 'MODEL'; heed info --help tells more"),
        (("info", "x"), "heed: x is not a folder or a file"),
    ],
)
def test_an_error_is_one_line(heed: Shell, words: tuple[str, ...], message: str) -> None:
    told = heed(*words, code=2)
    assert message in told.err
    assert told.err.startswith("heed: ")
    assert told.err.count("\n") == 1
    assert not told.out


def test_no_word_is_help(heed: Shell) -> None:
    assert heed().out == heed("--help").out


def test_other_names_are_of_commands_that_are_there() -> None:
    known = {command.name for command in app.registered_commands}
    assert not known & OTHERS.keys()
    assert {words.split()[1].rstrip(",") for words in OTHERS.values()} <= known | {"--version"}


def test_what_the_tab_key_offers_is_what_there_is() -> None:
    """Read from the source in no time, and held to the tables here."""
    assert complete.recipes("") == sorted(shipped())
    assert complete.tables("") == sorted(TABLES)
    offered = set(complete.entries(""))
    assert {name for table in TABLES for name in names(table)} <= offered
    assert complete.kinds("attent") == ["attention"]
    assert complete.precisions("") == sorted([*get_args(Bits), "keep"])


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("heed ver", ["verify"]),
        ("heed train char", ["characters"]),
        ("heed list linear_a", ["linear_attention"]),
        ("heed verify rop", ["rope"]),
        ("heed config characters training.opt", ["training.optimizer"]),
        ("heed run x --quantise int", ["int4", "int8"]),
        ("heed run x --device c", ["cpu", "cuda"]),
    ],
)
def test_a_shell_completes(typed: str, offered: list[str]) -> None:
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1), "_HEED_COMPLETE": "complete_bash"}
    code = "import sys, heed.cli; sys.argv = ['heed']\ntry: heed.cli.main()\nfinally: assert 'torch' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **words},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    found = done.stdout.split()
    assert [name for name in found if name in offered] == offered
    assert len(found) < 8


def test_a_script_for_the_shell_is_shown() -> None:
    """`--show-completion` asks which shell it was called from, of which there is none here."""
    done = subprocess.run(
        [sys.executable, "-m", "heed"],
        env={**os.environ, "_HEED_COMPLETE": "source_bash"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "_HEED_COMPLETE=complete_bash" in done.stdout
