"""Documents are true: code blocks run, links, paths and commands lead somewhere, and words are the field's."""

from __future__ import annotations

import ast
import configparser
import json
import re
import runpy
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import typer
import yaml

from benchmarks import bugs, mechanisms
from heed.catalogue import entries
from heed.cli import app

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    "README.md",
    "README.zh.md",
    "CONTRIBUTING.md",
    *(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md")),
]
PLAYED = ("README", "docs/tutorials", "docs/tour")  # test_tutorials.py and test_tour.py compare what they print
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def blocks(name: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / name).read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if not name.startswith(PLAYED)])
def test_code_blocks_run(name: str) -> None:
    """In order, in one namespace, as a reader would type them."""
    space = {"__name__": "document"}
    for number, block in enumerate(blocks(name)):
        exec(compile(block, f"{name}, block {number}", "exec", dont_inherit=True), space)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_examples_run_and_are_short(example: Path) -> None:
    assert len(example.read_text().splitlines()) <= 60
    runpy.run_path(str(example), run_name="__main__")


def test_the_catalogue_is_whole() -> None:
    page = read("docs/catalogue.md")
    lines = {cells[1].strip(): cells[2] for line in page.splitlines() if len(cells := line.split("|")) > 3}
    for entry in entries():
        assert re.search(rf"(?<![\w-]){re.escape(entry.name)}(?![\w-])", lines[entry.table]), (
            f"docs/catalogue.md lacks {entry}"
        )


@pytest.mark.parametrize("name", [*DOCUMENTS, "SECURITY.md", "CHANGELOG.md"])
def test_links_lead_somewhere(name: str) -> None:
    prose = re.sub(r"^```\w*\n.*?^```$", "", read(name), flags=MULTI)  # `table["a"](x)` is no link
    for target in re.findall(r"\]\(([^)#]+)\)", prose):
        if "://" not in target:
            assert ((ROOT / name).parent / target).exists(), f"{name} links to {target}, which is not there"


def test_the_pages_of_bugs_are_made_anew_when_bugs_change() -> None:
    """`make docs` writes them from heed/check/bugs.toml."""
    for name, text in bugs.pages().items():
        assert (bugs.FOLDER / name).read_text(encoding="utf-8") == text, f"docs/bugs/{name} is old; run: make docs"


def test_the_pages_of_mechanisms_are_made_anew_when_docstrings_change() -> None:
    """`make docs` writes them; the drawings beside them are measured, and so left out here."""
    for page in mechanisms.pages():
        written = (mechanisms.FOLDER / page.name).read_text(encoding="utf-8")
        assert written == page.text, f"docs/mechanisms/{page.name} is old; run: make docs"


WRONG = (ValueError, SyntaxError, yaml.YAMLError, subprocess.CalledProcessError, configparser.Error)


def parsed(kind: str, code: str) -> None:
    """Raise unless a block is what it says it is."""
    match kind:
        case "python":
            ast.parse(code)
        case "toml":
            tomllib.loads(code)
        case "yaml":
            yaml.safe_load(code)
        case "json":
            json.loads(code)
        case "sh":
            subprocess.run(["bash", "-n"], input=code, text=True, check=True, capture_output=True)
        case "ini":
            configparser.ConfigParser(interpolation=None).read_string(code)
        case "dockerfile":
            words = {line.split()[0] for line in code.replace("\\\n", "").splitlines() if line}
            if strange := words - {"CMD", "COPY", "ENTRYPOINT", "FROM", "HEALTHCHECK", "RUN", "STOPSIGNAL", "USER"}:
                raise ValueError(f"{strange} are no instructions of a Dockerfile")
        case "" | "text" | "diff":  # what is printed, equations, and what to change
            pass
        case _:
            raise ValueError(f"a block of {kind!r}: say in `parsed` how it is checked")


def test_every_block_of_code_is_what_it_says() -> None:
    every = [(name, *block) for name in DOCUMENTS for block in re.findall(r"^```(\w*)\n(.*?)^```$", read(name), MULTI)]
    assert {kind for _, kind, _ in every} >= {"python", "toml", "yaml", "sh", "text", ""}
    for name, kind, code in every:
        try:
            parsed(kind, code)
        except WRONG as error:
            pytest.fail(f"{name}: {error} in\n{code}")


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("ini", "a"),
        ("dockerfile", "RUN a\nMAKE b"),
        ("python", "x ="),
        ("toml", "a = null"),
        ("json", "{"),
        ("sh", "if true"),
        ("yaml", "a: b: c"),
        ("c", ""),
    ],
)
def test_a_wrong_block_is_found(kind: str, code: str) -> None:
    with pytest.raises(WRONG):
        parsed(kind, code)


# --- words ---

MULTI = re.MULTILINE | re.DOTALL
PROSE = [*DOCUMENTS, "SECURITY.md", "benchmarks/README.md"]
RETIRED = {  # what was said, and what is said instead; docs/glossary.md has the whole table
    r"few bits": "quantised",
    r"codes and steps": "codes and scales",
    r"large pages": "huge pages",
    r"packed rows|rows are packed": "varlen",
    r"drafts": "program cache",
    r"steppers?|practised": "runner",
    r"likeliest": "most likely, or top-k",
    r"slopes? of (a|the) (loss|cross-entropy)": "gradient",
    r"scores of the (next )?tokens?": "logits",
    r"hearers?|listeners?|viewers?|towers?": "speech, audio, vision, clip",
    r"trunks?": "backbone",
    r"memory of (an|the) encoder": "encoder output",
    r"somebody|whoever|nobody|himself|reads along": "name the object: the caller, the runner, no token",
}


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def retired(text: str) -> list[str]:
    """Each retired word in a text, and what to say instead."""
    found = ((match[0], new) for old, new in RETIRED.items() for match in re.finditer(rf"\b({old})\b", text, re.I))
    return [f"{word!r} (say: {new})" for word, new in found]


def commands() -> dict[str, Any]:
    """What heed can be told to do, as typer holds it."""
    group: Any = typer.main.get_command(app)
    return dict(group.commands)


def help_texts() -> Iterator[tuple[str, str]]:
    """What `--help` says, command by command, option by option."""
    for name, command in commands().items():
        yield name, f"{command.help} {command.epilog}"
        for option in command.params:
            yield f"{name} {option.name}", str(getattr(option, "help", ""))


def messages(source: str) -> Iterator[str]:
    """Texts of the errors that a file raises."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise) and node.exc is not None:
            for part in ast.walk(node.exc):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value


@pytest.mark.parametrize("name", PROSE)
def test_documents_use_the_words_of_the_field(name: str) -> None:
    found = retired(read(name))
    assert not found


def test_help_texts_use_the_words_of_the_field() -> None:
    texts = list(help_texts())
    assert len(texts) > 50
    assert not [(place, found) for place, text in texts if (found := retired(text))]


def test_errors_use_the_words_of_the_field() -> None:
    files = sorted((ROOT / "heed").rglob("*.py"))
    texts = [(str(file.relative_to(ROOT)), text) for file in files for text in messages(file.read_text("utf-8"))]
    assert len(texts) > 200
    assert not [(place, text, found) for place, text in texts if (found := retired(text))]


@pytest.mark.parametrize(
    "word", ["KV cache", "attention mask", "hidden states", "quantization", "gradient checkpointing"]
)
def test_a_search_for_a_usual_word_finds_it(word: str) -> None:
    assert any(word in read(name) for name in DOCUMENTS if not name.startswith(("docs/mechanisms", "docs/bugs")))
    assert word in read("docs/glossary.md")


def test_a_retired_word_is_found() -> None:
    assert retired("Nobody wrote it in few\u0020bits.") == [
        "'few bits' (say: quantised)",
        "'Nobody' (say: name the object: the caller, the runner, no token)",
    ]
    assert retired("ALiBi's slopes; attention scores; a draft; the trunkless") == []
    assert list(messages("def f(x):\n    raise ValueError(f'{x} is for nobody')")) == [" is for nobody"]


# --- places and commands ---

FOLDERS = ("heed", "tests", "benchmarks", "docs", "examples")
SOURCES = r"\.(py|cpp|h|md|toml|svg)$"


def missing_paths(text: str) -> list[str]:
    """Paths in backticks that are not there: below the project, below heed, or a kernel's source by its bare name."""
    missing = []
    for path in re.findall(r"`([\w.-]+(?:/[\w.-]+)*/?)`", text):
        inside = path.split("/")[0] in FOLDERS and "/" in path
        folder = path.endswith("/") and (ROOT / "heed" / path.split("/")[0]).is_dir()
        if inside or folder or ("/" in path and re.search(SOURCES, path)) or re.search(r"^\w+\.(cpp|h)$", path):
            homes = (ROOT, ROOT / "heed", ROOT / "heed" / "kernels" / "source")
            missing += [] if any((home / path).exists() for home in homes) else [path]
    return missing


def missing_names(text: str) -> list[str]:
    """Dotted names of heed in backticks that cannot be imported."""
    missing = []
    for name in re.findall(r"`(heed(?:\.\w+)+)(?:\([^`]*\))?`", text):
        try:
            resolve_name(name)
        except (ImportError, AttributeError):
            missing.append(name)
    return missing


def code_lines(text: str) -> Iterator[str]:
    """Lines for a shell: in fences that are not Python, set in by four spaces, or within a line; without comments."""
    text = re.sub(r"^```python\n.*?^```$", "", text, flags=MULTI)
    fenced = re.findall(r"^```\w*\n(.*?)^```$", text, MULTI)
    rest = re.sub(r"^```\w*\n.*?^```$", "", text, flags=MULTI)
    lines = [line for block in fenced for line in block.splitlines()] + re.findall(r"^    (.*)$", rest, re.MULTILINE)
    yield from (line.split(" #")[0] for line in [*lines, *re.findall(r"`([^`\n]+)`", rest)])


def unknown_commands(text: str) -> list[str]:
    """Commands and options of heed that documents name and heed does not have."""
    known, unknown = commands(), []
    for line in code_lines(text):
        match = re.search(r"(?:^|-m |\s)heed ([a-z]+)\b(?![.:(/])(.*)", line)
        if match is None:
            continue
        if match[1] not in known:
            unknown.append(f"heed {match[1]}")
            continue
        options = {name for option in known[match[1]].params for name in (*option.opts, *option.secondary_opts)}
        given = re.findall(r"(?<![\w-])(--[a-z][a-z-]*)", match[2])
        unknown += [f"heed {match[1]} {option}" for option in given if option not in options | {"--help"}]
    return unknown


@pytest.mark.parametrize("name", PROSE)
def test_paths_in_documents_are_there(name: str) -> None:
    found = missing_paths(read(name))
    assert not found


@pytest.mark.parametrize("name", PROSE)
def test_names_in_documents_are_there(name: str) -> None:
    found = missing_names(read(name))
    assert not found


@pytest.mark.parametrize("name", PROSE)
def test_commands_in_documents_are_there(name: str) -> None:
    found = unknown_commands(read(name))
    assert not found


def test_a_wrong_path_a_wrong_name_and_a_wrong_command_are_found() -> None:
    there = "`heed/core/state.py` `core/state.py` `step.cpp` `core/` `runs/my-run` `a/b`"
    assert missing_paths(f"{there} `heed/gone.py` `core/gone.py` `gone.cpp`") == [
        "heed/gone.py",
        "core/gone.py",
        "gone.cpp",
    ]
    assert missing_names("`heed.load(path)` `heed.core.laws` `heed.fly`, `heed.core.gone.f(x)`") == [
        "heed.fly",
        "heed.core.gone.f",
    ]
    told = (
        "`heed run x --beam 5`, `heed fly`\n\n    heed run x --wings  # heed swim\n\n```sh\nheed eval RUN --json\n```\n"
    )
    assert unknown_commands(told) == ["heed run --wings", "heed fly"]
