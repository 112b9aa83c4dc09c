"""The site: the documents of the project, a reference made from docstrings, and a search, as plain files.

    make site                # or: python -m tools.site [FOLDER]

Pages are gathered in one folder, their links led to each other, formulas turned into MathML (browsers draw it without
any script), and Zensical builds them. A link that leads nowhere fails the build.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import tomli_w
from latex2mathml.converter import convert

ROOT = Path(__file__).parents[1]
DOCS, PACKAGE = ROOT / "docs", ROOT / "heed"
BUILD = ROOT / "build" / "docs"
OUTSIDE = {  # documents that stand where people and tools look for them, and the pages that they become
    "README.md": "index.md",
    "README.zh.md": "zh/index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
}
FENCES = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
FORMULA = re.compile(r"^\$\$(.+?)\$\$$|(?<![\w$\\])\$([^$\n]+)\$(?![\w$])", re.MULTILINE | re.DOTALL)


def main() -> None:
    """Build it where the first argument says."""
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else BUILD)


def build(folder: Path) -> Path:
    """The site below this folder; gives the place of its first page."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = folder / "pages"
    gather(pages)
    reference(pages / "reference")
    (folder / "zensical.toml").write_text(tomli_w.dumps(settings(pages)), encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "-f", str(folder / "zensical.toml")]
    done = subprocess.run(command, cwd=folder, env={**os.environ, "NO_COLOR": "1"}, check=False)
    if done.returncode:
        raise SystemExit("the site was not built: mend what stands above")
    print(f"{folder / 'site' / 'index.html'} is the first page")
    return folder / "site" / "index.html"


# --- pages ---


def places() -> dict[Path, PurePosixPath]:
    """Every file of the site, and its place there."""
    inside = {path: PurePosixPath(path.relative_to(DOCS)) for path in DOCS.rglob("*") if path.suffix in (".md", ".svg")}
    outside = {ROOT / name: PurePosixPath(place) for name, place in OUTSIDE.items() if (ROOT / name).exists()}
    return inside | outside


def gather(pages: Path) -> None:
    """Copy every file to its place; links and formulas of pages are rewritten on the way."""
    every = places()
    for source, place in every.items():
        target = pages / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            target.write_text(page(source.read_text(encoding="utf-8"), source, every), encoding="utf-8")
        else:
            shutil.copy(source, target)


def page(text: str, source: Path, every: dict[Path, PurePosixPath]) -> str:
    """A document as a page of the site; what stands in code stays as it is."""
    home = every[source].parent

    def led(match: re.Match[str]) -> str:
        words, target, anchor = match[1], match[2], match[3] or ""
        file = Path(os.path.normpath(source.parent / target))
        if "://" in target or not file.exists():
            return match[0]  # elsewhere, or nowhere: then the build says so
        if file.is_dir() and file / "README.md" in every:
            file /= "README.md"
        if file not in every:
            return f"`{words.strip('`')}`"  # a file of the source, which is no page
        return f"[{words}]({os.path.relpath(every[file], home)}{anchor})"

    pieces = FENCES.split(text)
    pieces[::2] = [FORMULA.sub(_formula, LINK.sub(led, piece)) for piece in pieces[::2]]
    return "".join(pieces)


def _formula(match: re.Match[str]) -> str:
    if match[1] is not None:
        return convert(match[1].strip(), display="block")
    return convert(match[2])


# --- the reference ---


def reference(folder: Path) -> None:
    """A page for every package, with all its modules, and an index."""
    folder.mkdir(parents=True)
    rows = []
    for package in packages():
        name = ".".join(package.relative_to(ROOT).parts)
        modules = [f"{name}.{path.stem}" for path in sorted(package.glob("*.py")) if path.stem[0] != "_"]
        about = "\n\n".join(f"::: {module}" for module in modules)
        (folder / f"{name}.md").write_text(f"# {name}\n\n{summary(package)}\n\n{about}\n", encoding="utf-8")
        rows.append(f"| [{name}]({name}.md) | {summary(package)} |")
    head = ["# Reference", "", "Every package, from the docstrings of its modules.", "", "| package | what it holds |"]
    (folder / "README.md").write_text("\n".join([*head, "|---|---|", *rows, ""]), encoding="utf-8")


def packages() -> Iterator[Path]:
    """Folders of the package with modules to tell about, heed itself first."""
    for init in sorted(PACKAGE.rglob("__init__.py")):
        if any(path.stem[0] != "_" for path in init.parent.glob("*.py")):
            yield init.parent


def summary(package: Path) -> str:
    """The first line of a package's docstring."""
    lines = (package / "__init__.py").read_text(encoding="utf-8").splitlines()
    return lines[0].strip('" ')


# --- settings ---


def settings(pages: Path) -> dict[str, Any]:
    """docs/site.toml, with the pages of folders that are made from tables."""
    found = tomllib.loads((DOCS / "site.toml").read_text(encoding="utf-8"))
    made = {
        "Tour": listed(pages, "tour"),
        "Mechanisms": listed(pages, "mechanisms"),
        "Bugs": listed(pages, "bugs"),
        "Reference": listed(pages, "reference"),
        "中文": ["zh/index.md", *listed(pages, "tour/zh")],
    }
    project = found["project"]
    project["nav"] = [
        {name: made.get(name, entries)} for section in project["nav"] for name, entries in section.items()
    ]
    project["plugins"]["mkdocstrings"]["handlers"]["python"]["paths"] = [str(ROOT)]
    return found


def listed(pages: Path, folder: str) -> list[str]:
    """The pages of a folder, its index first."""
    names = sorted(path.name for path in (pages / folder).glob("*.md"))
    return [f"{folder}/{name}" for name in sorted(names, key=lambda name: name != "README.md")]


if __name__ == "__main__":
    main()
