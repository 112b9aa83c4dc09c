"""The rooms of the project: how many files a folder holds, what they are called, and that the printed tree is the tree.

The rules are those of docs/architecture.md, beside those of tests/test_architecture.py. All offenders are listed at
once, and there is no list of exceptions: a folder that holds one file per entry of a table says so here, for all of it.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_architecture import ROOT, STRANGERS, Source, imported

FILES, TINY = 15, 40  # of a folder, at most; lines below which a file needs more than one user
# Folders with one file per entry of a table.
ENTRIES = frozenset({"heed/mixers", "heed/weights/families", "heed/weights/replays/authors", "heed/engine/emit"})
# Tests of no package: recordings, checkpoints, the wheel, what attacks found.
UNMIRRORED = frozenset({"golden", "trained", "install", "attack"})


def sources(root: Path) -> list[Source]:
    found = []
    for file in sorted((root / "heed").rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        found.append(Source(file.relative_to(root), text, ast.parse(text)))
    return found


def crowded_folders(files: list[Source]) -> Iterator[str]:
    """Folders with more files than a reader takes in at a glance."""
    held: dict[str, int] = defaultdict(int)
    for file in files:
        held[file.path.parent.as_posix()] += file.path.name != "__init__.py"
    for folder, count in held.items():
        if count > FILES and folder not in ENTRIES:
            yield f"{folder}: {count} files, at most {FILES}; group them by what they are"


def repeated_classes(files: list[Source]) -> Iterator[str]:
    """Two public classes of one name within a package: a search finds the wrong one."""
    where: dict[tuple[str, str], list[str]] = defaultdict(list)
    for file in files:
        for node in file.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[file.home, node.name].append(file.at(node.lineno, ""))
    for (home, name), places in where.items():
        if len(places) > 1:
            yield f"{home} has {len(places)} classes {name}: {' '.join(places)}"


def lonely_files(files: list[Source]) -> Iterator[str]:
    """Tiny files that a single sibling imports: they are a part of it."""
    users: dict[tuple[str, ...], set[Source]] = defaultdict(set)
    modules = {module_of(file.path): file for file in files}
    for file in files:
        for module in read_by(file, modules):
            users[module].add(file)
    for module, file in modules.items():
        short = len(file.text.splitlines()) < TINY and file.path.name not in {"__init__.py", "__main__.py"}
        if short and file.path.parent.as_posix() not in ENTRIES and len(users[module]) == 1:
            (user,) = users[module]
            if user.home == file.home and user.path.name != "__init__.py":
                yield file.at(
                    1, f"{len(file.text.splitlines())} lines that only {user.path.as_posix()} imports; move them there"
                )


def module_of(path: Path) -> tuple[str, ...]:
    parts = path.with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def read_by(file: Source, modules: dict[tuple[str, ...], Source]) -> set[tuple[str, ...]]:
    """The modules of heed that a file imports, by `from . import name` too, or names in a table as `module:Name`."""
    found = {module for _, module in imported(file) if module in modules}
    package = file.path.parts[:-1]
    for node in ast.walk(file.tree):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            found |= {(*base, alias.name) for alias in node.names if (*base, alias.name) in modules}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and ":" in node.value:
            found |= {(*package, *node.value.partition(":")[0].split("."))} & modules.keys()
    return found


def unmirrored_tests(root: Path) -> Iterator[str]:
    """Folders of tests that are named like no folder of heed."""
    for folder in sorted(path for path in (root / "tests").rglob("*") if path.is_dir() and any(path.glob("*.py"))):
        place = folder.relative_to(root / "tests")
        if folder.is_relative_to(root / STRANGERS):
            continue
        if place.parts[0] not in UNMIRRORED and not (root / "heed" / place).is_dir():
            yield f"tests/{place.as_posix()} mirrors no folder of heed"


def printed_tree(text: str) -> set[str]:
    """The folders in the tree that docs/architecture.md draws: two spaces deeper is one folder deeper."""
    block = text.split("## The tree", 1)[1].split("```")[1]
    found, above = set[str](), list[str]()
    for line in block.splitlines():
        match = re.match(r"^( *)((?:[\w]+/ ?)+)", line)
        if match is None:
            continue
        depth = len(match[1]) // 2
        above[depth:] = [match[2].split("/")[0]]
        for name in match[2].replace(" ", "").rstrip("/").split("/"):
            found.add("/".join([*above[:depth], name]))
    return found


def places_to_change(text: str) -> list[tuple[str, str]]:
    """File and name of every row of the table that says where to change something."""
    section = text.split("## Where do I change ...?", 1)[1].split("\n## ", maxsplit=1)[0]
    return re.findall(r"^\| .* \| `([^`]+)` \| `([^`]+)` \|$", section, re.MULTILINE)


def holds(tree: ast.Module, name: str) -> bool:
    """Whether a module defines a name, or a class in it one of its own: `Log.append`."""
    scope: list[ast.stmt] = tree.body
    for part in name.split("."):
        found = [node for node in scope if part in defined(node)]
        if not found:
            return False
        scope = found[0].body if isinstance(found[0], ast.ClassDef) else []
    return True


def defined(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {target.id for target in targets if isinstance(target, ast.Name)}


def folders(root: Path) -> set[str]:
    held = {path.parent.relative_to(root) for path in (root / "heed").rglob("*") if path.is_file()}
    return {path.as_posix() for path in held if "__pycache__" not in path.parts}


# --- tests ---


@pytest.mark.parametrize("rule", [crowded_folders, repeated_classes, lonely_files], ids=lambda rule: rule.__name__)
def test_rooms_are_in_order(rule: object) -> None:
    files = sources(ROOT)
    assert len(files) > 100, "this test looks in the wrong place"
    found = list(rule(files))  # type: ignore[operator]
    assert not found, f"{len(found)} offenders:\n" + "\n".join(found)


def test_tests_mirror_the_packages() -> None:
    found = list(unmirrored_tests(ROOT))
    assert not found, "\n".join(found)


def test_the_printed_tree_is_the_tree() -> None:
    printed, there = printed_tree((ROOT / "docs/architecture.md").read_text(encoding="utf-8")), folders(ROOT)
    assert printed == there, (
        f"printed, but not there: {sorted(printed - there)}; there, but not printed: {sorted(there - printed)}"
    )


def test_a_reader_finds_what_to_change() -> None:
    rows = places_to_change((ROOT / "docs/architecture.md").read_text(encoding="utf-8"))
    assert len(rows) >= 10
    for file, name in rows:
        tree = ast.parse((ROOT / "heed" / file).read_text(encoding="utf-8"))
        assert holds(tree, name), f"docs/architecture.md says that heed/{file} has {name}"


def test_a_name_that_is_not_there_is_noticed() -> None:
    tree = ast.parse("A: int = 1\nB = 2\nclass C:\n    def d(self): ...\ndef e(): ...\n")
    assert all(holds(tree, name) for name in ("A", "B", "C", "C.d", "e"))
    assert not any(holds(tree, name) for name in ("a", "d", "C.e", "e.f", "A.b"))


def plant(root: Path, files: dict[str, str]) -> list[Source]:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return sources(root)


def test_a_crowded_folder_is_named(tmp_path: Path) -> None:
    many = {f"heed/parts/p{i}.py": "" for i in range(FILES + 1)}
    assert list(crowded_folders(plant(tmp_path, {**many, "heed/parts/__init__.py": ""}))) == [
        "heed/parts: 16 files, at most 15; group them by what they are"
    ]
    assert not list(crowded_folders(plant(tmp_path / "b", {f"heed/mixers/m{i}.py": "" for i in range(FILES + 1)})))


def test_classes_of_one_name_are_named(tmp_path: Path) -> None:
    one = "class A:\n    class Config: ...\nclass _Own: ...\n"
    (found,) = repeated_classes(
        plant(tmp_path, {"heed/parts/a.py": one, "heed/parts/deep/b.py": one, "heed/core/a.py": one})
    )
    assert found.startswith("parts has 2 classes A: heed/parts/a.py:1:")


LONELY = {
    "by name": ("heed/parts/big.py", "from .small import A", True),
    "by module": ("heed/parts/big.py", "from . import small", True),
    "for types": ("heed/parts/big.py", "import typing\nif typing.TYPE_CHECKING:\n    from .small import A", True),
    "by its package": ("heed/parts/__init__.py", "from .small import A", False),
    "from another package": ("heed/mixers/big.py", "from ..parts.small import A", False),
}


@pytest.mark.parametrize(("user", "text", "lonely"), LONELY.values(), ids=LONELY)
def test_a_tiny_file_with_one_user_is_named(tmp_path: Path, user: str, text: str, lonely: bool) -> None:
    files = {"heed/parts/small.py": "class A: ...\n", user: text}
    assert bool(list(lonely_files(plant(tmp_path, files)))) is lonely
    assert not list(lonely_files(plant(tmp_path, {**files, "heed/parts/second.py": "from .small import A"})))
    assert not list(lonely_files(plant(tmp_path, {**files, "heed/parts/small.py": "\n" * TINY})))


def test_a_table_is_a_user(tmp_path: Path) -> None:
    files = {"heed/parts/small.py": "class A: ...\n", "heed/parts/big.py": "from .small import A"}
    table = {"heed/parts/__init__.py": 'TABLE = {"a": "small:A"}'}
    assert not list(lonely_files(plant(tmp_path, {**files, **table})))


def test_a_folder_of_tests_for_nothing_is_named(tmp_path: Path) -> None:
    plant(
        tmp_path,
        {
            "heed/parts/a.py": "",
            "tests/parts/test_a.py": "",
            "tests/other/test_b.py": "",
            "tests/golden/a.py": "",
            f"{STRANGERS}/package/a.py": "",
        },
    )
    assert list(unmirrored_tests(tmp_path)) == ["tests/other mirrors no folder of heed"]


DRAWN = """## The tree

```
heed/
  core/   what all need
  parts/
    masks/ scores/  two in a line
  runs/ train/ more
```
"""


def test_a_tree_is_read_as_it_is_drawn() -> None:
    below = {"core", "parts", "parts/masks", "parts/scores", "runs", "train"}
    assert printed_tree(DRAWN) == {"heed", *(f"heed/{name}" for name in below)}
