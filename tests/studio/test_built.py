"""The page that lies in the package is the one that its sources make, speaks both languages, and is small."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import subprocess
from pathlib import Path

import pytest

from heed.studio.page import FILE

WEB = Path(__file__).parents[2] / "studio" / "web"
LARGEST = 150_000  # bytes, compressed
MESSAGES = json.loads((WEB / "src" / "messages.json").read_text(encoding="utf-8"))
SOURCES = [path for path in (WEB / "src").rglob("*") if path.suffix in {".js", ".svelte"}]


def digest(folder: Path) -> str:
    """Of all that the page is built from, as inline.js has it."""
    fixed = ("index.html", "inline.js", "package-lock.json", "package.json", "vite.config.js")
    names = [*fixed, *(path.relative_to(folder).as_posix() for path in (folder / "src").rglob("*") if path.is_file())]
    found = hashlib.sha256()
    for name in sorted(names):
        found.update(f"{name}\0".encode() + (folder / name).read_bytes() + b"\0")
    return found.hexdigest()


def test_the_page_is_built_from_these_sources() -> None:
    (told,) = re.findall(r'<meta name="sources" content="(\w+)"', FILE.read_text(encoding="utf-8"))
    assert told == digest(WEB), "studio/web was changed and the page was not built again: make web"


def test_it_is_small_and_asks_nobody() -> None:
    raw = FILE.read_bytes()
    assert len(gzip.compress(raw)) < LARGEST
    assert set(re.findall(rb"https?://[\w./-]+", raw)) <= {
        b"http://www.w3.org/2000/svg",
        b"http://www.w3.org/1999/xhtml",
        b"http://www.w3.org/1998/Math/MathML",
        b"https://svelte.dev/e/",
    } | set(re.findall(rb"https://svelte\.dev/e/\w+", raw))


def test_both_languages_say_everything() -> None:
    english, chinese = MESSAGES["en"], MESSAGES["zh"]
    assert list(english) == list(chinese)
    for key, text in english.items():
        assert text.strip(), key
        assert chinese[key].strip(), key
        assert set(re.findall(r"\{\w+\}", text)) == set(re.findall(r"\{\w+\}", chinese[key])), key


def test_every_message_is_used_and_every_use_is_a_message() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)
    plain = set(re.findall(r"""\bt\(\s*(?:\w+(?:\.\w+)? \? )?"([\w.]+)\"""", text))
    begun = set(re.findall(r"\bt\(`([\w.]+\.)\$\{", text))
    named = set(re.findall(r'"([\w.]+)"', text))
    assert plain, "this test looks in the wrong place"
    assert plain <= set(MESSAGES["en"]), plain - set(MESSAGES["en"])
    unused = {key for key in MESSAGES["en"] if key not in named and not any(key.startswith(start) for start in begun)}
    assert unused == set()


def test_nothing_that_npm_made_is_kept() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "studio"], cwd=WEB.parents[1], capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("this is no working copy of git")
    files = listed.stdout.split()
    assert "studio/web/package-lock.json" in files
    assert not [name for name in files if "node_modules" in name or "/dist/" in name]
