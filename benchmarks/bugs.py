"""docs/bugs: a page for every bug that `heed check` knows, made from heed/check/bugs.toml.

python -m benchmarks.bugs
"""

from __future__ import annotations

from pathlib import Path

from heed.check.bugs import BUGS, Bug
from heed.check.probes import PROBES

FOLDER = Path(__file__).parents[1] / "docs" / "bugs"
STATEMENTS = {probe.name: probe.statement for probe in PROBES}


def pages() -> dict[str, str]:
    """All of them by file name, the index first."""
    return {"README.md": _index(), **{f"{bug.slug}.md": _page(bug) for bug in BUGS.values()}}


def write(folder: Path = FOLDER) -> None:
    """Every page, and nothing that is no longer one."""
    folder.mkdir(parents=True, exist_ok=True)
    made = pages()
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")
    for path in folder.iterdir():
        if path.name not in made:
            path.unlink()


def _index() -> str:
    lines = [
        "# Bugs",
        "",
        "What `heed check` finds, each under a name that does not change. [check.md](../check.md) tells how it looks.",
        "",
        "| name | what is wrong |",
        "|---|---|",
        *(f"| [{bug.slug}]({bug.slug}.md) | {bug.says} |" for bug in BUGS.values()),
        "",
    ]
    return "\n".join(lines)


def _page(bug: Bug) -> str:
    found = [f"- `{name}`: {STATEMENTS[name]}" if name in STATEMENTS else f"- `{name}`" for name in bug.probes]
    case = ["", f"It happened in {bug.case}."] if bug.case else []
    lines = [
        f"# {bug.slug}",
        "",
        bug.says,
        *case,
        "",
        "## How it hides",
        "",
        bug.hides,
        "",
        "## What it looks like",
        "",
        "```python",
        bug.example,
        f'assert "{bug.slug}" in report.slugs',
        "print(report)",
        "```",
        "",
        "## How it is found",
        "",
        *(found or ["By whatever probe it happens in."]),
        "",
        "## How to mend it",
        "",
        bug.fix,
        "",
        "```diff",
        f"- {bug.before}",
        f"+ {bug.after}",
        "```",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    write()
