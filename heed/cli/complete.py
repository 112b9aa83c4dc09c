"""What the tab key offers: recipes, keys of settings, names of entries.

A shell waits for it, so nothing is imported that needs torch: names are read from the source, where each class says its
`kind` and each table its names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

HEED = Path(__file__).parents[1]
KIND = re.compile(r'^ +kind: Literal\["([\w-]+)"\]', re.MULTILINE)
FAMILY = re.compile(r'^        "([\w-]+)": "\w+:\w+"', re.MULTILINE)
TABLES = (
    *(
        "mixers",
        "feed-forwards",
        "positions",
        "masks",
        "scores",
        "norms",
        "wirings",
        "heads",
        "models",
        "architectures",
    ),
    *(
        "image convolutions",
        "images and sounds",
        "augmentations",
        "edits",
        "checkpoints",
        "tokenizers",
        "data",
        "tasks",
    ),
    "decoding",
)
FOLDERS = ("mixers", "parts", "models", "media", "weights/edits", "text", "data", "tasks", "decode")


def recipes(incomplete: str) -> list[str]:
    """The names of heed's recipes; files are the shell's to complete."""
    return _begun((path.stem for path in (HEED / "recipes").glob("*.toml")), incomplete)


def keys(ctx: typer.Context, incomplete: str) -> list[str]:
    """Places in the recipe that was named before: those that its file sets."""
    import tomllib

    named = ctx.params.get("recipe")
    path = HEED / "recipes" / f"{named}.toml"
    if not path.is_file():
        return []
    return _begun(_places(tomllib.loads(path.read_text(encoding="utf-8"))), incomplete)


def devices(incomplete: str) -> list[str]:
    """Where models run."""
    return _begun(("cpu", "cuda", "mps"), incomplete)


def dtypes(incomplete: str) -> list[str]:
    """What models compute in."""
    return _begun(("float32", "bfloat16", "float16", "float64", "auto"), incomplete)


def precisions(incomplete: str) -> list[str]:
    """How weights are quantised: the names in the source."""
    source = (HEED / "weights/edits/quantised.py").read_text(encoding="utf-8")
    named = re.search(r"^Bits.*= Literal\[([^]]*)\]", source, re.MULTILINE)
    return _begun([*([] if named is None else re.findall(r'"([\w]+)"', named[1])), "keep"], incomplete)


def tables(incomplete: str) -> list[str]:
    """The tables of `heed list`."""
    return _begun(TABLES, incomplete)


def kinds(incomplete: str) -> list[str]:
    """Everything that has a kind."""
    return _begun(_kinds(), incomplete)


def entries(incomplete: str) -> list[str]:
    """Everything that `heed list` takes: tables, kinds, families of checkpoints."""
    families = FAMILY.findall((HEED / "weights/families/__init__.py").read_text(encoding="utf-8"))
    return _begun([*TABLES, *_kinds(), *families], incomplete)


def _kinds() -> Iterator[str]:
    for folder in FOLDERS:
        for path in (HEED / folder).rglob("*.py"):
            yield from KIND.findall(path.read_text(encoding="utf-8"))


def _places(node: Any, above: str = "") -> Iterator[str]:
    if isinstance(node, list) and len(node) == 1:
        (node,) = node
    if isinstance(node, dict):
        for name, inner in node.items():
            place = f"{above}.{name}" if above else name
            yield place
            yield from _places(inner, place)


def _begun(names: Any, incomplete: str) -> list[str]:
    return sorted({name for name in names if name.startswith(incomplete)})
