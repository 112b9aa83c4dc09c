"""docs/commands.md: every command has a section, and what runs in it prints what it says."""

from __future__ import annotations

import re
from pathlib import Path

from heed.cli import app
from heed.cli.chat import HELP
from tests.documents import ROOT, Play, blocks

PAGE = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")


def test_the_page_is_played(tmp_path: Path) -> None:
    play = Play(tmp_path, "commands.md")
    for block in blocks(PAGE):
        play.check(block)


def test_every_command_has_a_section() -> None:
    sections = re.findall(r"^## (\w+)$", PAGE, re.MULTILINE)
    assert {command.name for command in app.registered_commands} <= set(sections)
    linked = re.findall(r"\[(\w+)\]\(#\1\)", PAGE)
    assert sorted(linked) == sorted(sections)


def test_the_chats_help_is_the_chats_help() -> None:
    assert HELP in PAGE
