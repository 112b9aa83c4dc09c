"""A case: files in a folder, made of a healthy material and a few mutations that a seed decides; and the corpus."""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / "tests" / "attack" / "corpus"
LARGEST = 1 << 17  # bytes of an entry of the corpus, packed


class Special(NamedTuple):
    """What stands in a folder in the place of a file."""

    kind: Literal["symlink", "hardlink", "pipe", "folder"]
    target: str = ""  # of a link, from the case's folder


Content: TypeAlias = bytes | Special
Files: TypeAlias = dict[str, Content]  # by path, from the case's folder


@dataclass(frozen=True)
class Case:
    """Input of one attack. What is not changed is as in the material of that name."""

    target: str
    material: str
    changed: Mapping[str, Content]
    removed: tuple[str, ...] = ()
    seed: int | None = None
    why: str = ""  # it is in the corpus
    steps: tuple[int, ...] = field(default=())  # seeds of its mutations

    @classmethod
    def of(cls, target: str, material: str, before: Files, after: Files) -> Case:
        """What differs."""
        changed = {name: content for name, content in after.items() if before.get(name) != content}
        return cls(target, material, changed, tuple(sorted(before.keys() - after.keys())))

    def files(self, before: Files) -> Files:
        """All of it, on top of its material."""
        kept = {name: content for name, content in before.items() if name not in self.removed}
        return {**kept, **self.changed}


def write(files: Files, folder: Path) -> None:
    """Files into an empty folder; names that no file system takes are left out."""
    for name, content in files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                path.write_bytes(content)
            else:
                _special(path, content, folder)
        except (OSError, ValueError):  # a mutated name: too long, with a zero, a folder of another's name
            continue


def _special(path: Path, content: Special, folder: Path) -> None:
    match content.kind:
        case "symlink":
            path.symlink_to(content.target)
        case "hardlink":
            os.link(folder / content.target, path)
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()


def read_folder(folder: Path) -> Files:
    """The files of a folder, as a material."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


# --- the corpus: one small JSON file per case ---


def corpus(folder: Path = CORPUS) -> Iterator[tuple[Path, Case]]:
    """All entries."""
    for path in sorted(folder.glob("*/*.json")):
        yield path, read_case(path)


def read_case(path: Path) -> Case:
    data = json.loads(path.read_text(encoding="utf-8"))
    changed: dict[str, Content] = {name: _unpacked(content) for name, content in data["changed"].items()}
    return Case(data["target"], data["material"], changed, tuple(data["removed"]), data["seed"], data["why"])


def write_case(case: Case, path: Path) -> bool:
    """Whether it was small enough to keep."""
    data = {
        "target": case.target,
        "material": case.material,
        "seed": case.seed,
        "why": case.why,
        "removed": list(case.removed),
        "changed": {name: _packed(content) for name, content in case.changed.items()},
    }
    text = json.dumps(data, indent=1, ensure_ascii=True) + "\n"
    if len(text) > LARGEST:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return True


def _packed(content: Content) -> object:
    if isinstance(content, Special):
        return {"kind": content.kind, "target": content.target}
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = None
    if text is not None and len(text) < 4000 and "\0" not in text:
        return {"text": text}
    return {"zlib": base64.b64encode(zlib.compress(content, 9)).decode()}


def _unpacked(data: dict[str, str]) -> Content:
    if "kind" in data:
        return Special(data["kind"], data["target"])  # type: ignore[arg-type]
    if "text" in data:
        return data["text"].encode("utf-8")
    return zlib.decompress(base64.b64decode(data["zlib"]))
