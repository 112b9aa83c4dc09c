"""The shape of the project: who may import whom, and how long a file or a function may grow.

The rules are those of docs/architecture.md. All offenders are listed at once. If a rule turns out to be wrong,
change it there and here, for everybody. There is no list of exceptions.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from torch import nn

ROOT = Path(__file__).resolve().parents[1]

BELOW = "core threads text data media show kernels parts mixers models engine weights decode pipelines tasks runs"

# A package or top-level module of heed, and what of heed it may import besides itself.
MAY_IMPORT = {
    home: frozenset(targets.split())
    for home, targets in {
        "core": "",
        "threads": "core",
        "text": "core",
        "data": "core",
        "media": "core",
        "show": "core",
        "kernels": "core threads",
        "parts": "core kernels",
        "mixers": "core parts kernels",
        "models": "core parts mixers",
        "engine": "core threads kernels parts mixers models",
        "weights": "core kernels parts mixers models",
        "decode": "core engine",
        "pipelines": "core text media parts models engine weights decode",
        "tasks": "core text data media parts engine decode pipelines",
        "runs": "core text data media show parts models engine weights decode pipelines tasks",
        "train": "core threads text data media show parts models engine weights decode pipelines tasks runs",
        "serve": "core kernels text models engine weights decode pipelines tasks runs",
        "check": "__init__ core",
        "testing": "check",
        "installed": "",
        "views": "core show kernels parts mixers models weights pipelines runs",
        "compare": f"{BELOW} train serve check",
        "verify": f"{BELOW} train serve check compare",
        "studio": "core show parts mixers models pipelines runs views check compare serve",
        "catalogue": "core show text data media parts mixers models engine weights decode tasks",
        "demo": f"{BELOW} train verify",
        "bench": f"__init__ {BELOW} train",
        "cli": "__init__ core show kernels models engine weights decode pipelines tasks runs train serve views check "
        "compare verify studio catalogue demo bench installed",
    }.items()
}
FREE = frozenset({"__init__", "__main__"})  # heed/__init__.py and heed/__main__.py may import anything
ALONE = frozenset({"mixers"})  # files in these packages never import one another; only the package's __init__ does
OUTSIDE = {
    "core": sys.stdlib_module_names | {"torch", "numpy", "pydantic", "pydantic_core", "annotated_types", "tomli_w"}
}
FOLDERS = ("heed", "tests", "examples", "benchmarks")  # where the budgets hold
STRANGERS = "tests/check/corpus"  # code in the manner of strangers, as data for tests: no rule of ours holds there
FILE_LINES, FUNCTION_LINES, PARAMETERS = 400, 59, 8  # the most that is allowed


@dataclass(frozen=True)
class Source:
    """One Python file: its path below the root of the project, its text and its syntax tree."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def home(self) -> str:
        """The package or top-level module of heed that this file belongs to."""
        return self.path.parts[1].removesuffix(".py")

    def at(self, line: int, message: str) -> str:
        return f"{self.path.as_posix()}:{line}: {message}"


def problems(root: Path) -> list[str]:
    """Everything below `root` that breaks a rule, one line each."""
    found: list[str] = []
    for folder in FOLDERS:
        files = sorted((root / folder).rglob("*.py"))
        if folder == "heed" and not files:
            found.append("heed: no Python files; this test looks in the wrong place")
        for file in files:
            text = file.read_text(encoding="utf-8")
            path = file.relative_to(root)
            if path.is_relative_to(STRANGERS):
                continue
            try:
                source = Source(path, text, ast.parse(text))
            except SyntaxError as error:
                found.append(f"{path.as_posix()}:{error.lineno}: does not parse: {error.msg}")
                continue
            found += budget_problems(source)
            if folder == "heed":
                found += import_problems(source)
    return found


# --- imports ---


def import_problems(source: Source) -> Iterator[str]:
    home = source.home
    if home not in MAY_IMPORT and home not in FREE:
        yield source.at(1, f"{home} is unknown; say where it belongs in docs/architecture.md and in this table")
        return
    for line, module in sorted(imported(source)):
        if not module:
            yield source.at(line, "a relative import climbs out of heed")
        elif module[0] != "heed":
            if home in OUTSIDE and module[0] not in OUTSIDE[home]:
                yield source.at(line, f"{home} may not import {module[0]} from outside")
        elif home not in FREE:
            yield from inside_problems(source, line, module)


def inside_problems(source: Source, line: int, module: tuple[str, ...]) -> Iterator[str]:
    """What is wrong with an import of `module`, which is heed or something below it."""
    home = source.home
    target = module[1] if len(module) > 1 else "__init__"
    if target == home:
        if home in ALONE and source.path != Path("heed", home, "__init__.py"):
            yield source.at(line, f"files in {home} may not import one another ({'.'.join(module)})")
    elif target not in MAY_IMPORT[home]:
        allowed = ", ".join(sorted(MAY_IMPORT[home])) or "nothing of ours"
        yield source.at(line, f"{home} may not import {target}; it may import {allowed}")


def imported(source: Source) -> set[tuple[int, tuple[str, ...]]]:
    """The line and the full dotted name of every import, wherever it stands; () if it leads out of heed."""
    found: set[tuple[int, tuple[str, ...]]] = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            found |= {(node.lineno, tuple(alias.name.split("."))) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.lineno, module) for module in named(source.path, node)}
        elif isinstance(node, ast.Call) and (name := called_import(node)):
            found.add((node.lineno, tuple(name.split("."))))
    return found


def named(path: Path, node: ast.ImportFrom) -> set[tuple[str, ...]]:
    """The modules that `from ... import a, b` reads: below a package each name may be a module of its own."""
    package = path.parts[:-1]
    if node.level > len(package):
        return {()}
    base = package[: len(package) - node.level + 1] if node.level else ()
    base += tuple(node.module.split(".")) if node.module else ()
    if base != ("heed",):
        return {base}
    # `from heed import parts` reads a package; `from heed import load` reads a name of heed/__init__.py
    return {("heed", alias.name) if alias.name in MAY_IMPORT else ("heed",) for alias in node.names}


def called_import(node: ast.Call) -> str | None:
    """The module in `import_module("heed.parts")` or `__import__("heed.parts")`."""
    match node:
        case ast.Call(
            func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(name)), *_],
        ) if not name.startswith("."):
            return name
    return None


# --- budgets ---


def budget_problems(source: Source) -> Iterator[str]:
    lines = len(source.text.splitlines())
    if source.path.parts[0] != "heed":
        lines -= table_lines(source.tree)
    if lines > FILE_LINES:
        yield source.at(1, f"{lines} lines, at most {FILE_LINES}; split the file along its concepts")
    torchs = dict(overriding(source.tree))
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = span(node)
            if length > FUNCTION_LINES:
                yield source.at(
                    node.lineno, f"{node.name} has {length} lines, at most {FUNCTION_LINES}; name its steps"
                )
            count = parameters(node.args)
            if count > max(PARAMETERS, torchs.get(node, 0)):
                message = f"{node.name} has {count} parameters, at most {PARAMETERS}; group them in a dataclass"
                yield source.at(node.lineno, message)


def table_lines(tree: ast.Module) -> int:
    """Lines of data rather than code: decorators (parametrised tests) and tables at the top level of a module."""
    lines = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            lines += sum(span(decorator) for decorator in node.decorator_list)
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(
            statement.value, ast.List | ast.Tuple | ast.Dict | ast.Set
        ):
            lines += span(statement)
    return lines


def span(node: ast.stmt | ast.expr) -> int:
    """How many lines `node` takes; for a function, without its decorators."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def parameters(arguments: ast.arguments) -> int:
    """How many parameters a caller must know: all sorts of them, without self or cls.

    Keyword-only ones with a default are settings: whoever needs one names it, everybody else never sees it.
    """
    positional = [*arguments.posonlyargs, *arguments.args]
    bound = bool(positional) and positional[0].arg in {"self", "cls"}
    gathered = (arguments.vararg is not None) + (arguments.kwarg is not None)
    named = sum(default is None for default in arguments.kw_defaults)
    return len(positional) + named + gathered - bound


def overriding(tree: ast.Module) -> Iterator[tuple[ast.AST, int]]:
    """Methods in the place of those of a class `nn.X`, and how many parameters torch gives those: they are torch's."""
    for owner in ast.walk(tree):
        if not isinstance(owner, ast.ClassDef):
            continue
        for base in owner.bases:
            match base:
                case ast.Attribute(value=ast.Name(id="nn"), attr=name) if name in vars(nn):
                    for method in owner.body:
                        if isinstance(method, ast.FunctionDef) and method.name in vars(vars(nn)[name]):
                            yield method, len(inspect.signature(vars(vars(nn)[name])[method.name]).parameters) - 1


# --- tests ---


def test_the_project_keeps_its_rules() -> None:
    found = problems(ROOT)
    assert not found, f"{len(found)} offenders:\n" + "\n".join(found)


def test_the_table_has_no_cycles_and_no_strangers() -> None:
    assert set(TopologicalSorter(MAY_IMPORT).static_order()) == set(MAY_IMPORT) | {"__init__"}


def plant(root: Path, files: dict[str, str]) -> list[str]:
    """Write `files` below `root`, with a heed to stand in, and check the tree."""
    for name, text in {"heed/__init__.py": "", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return problems(root)


def function(lines: int, head: str = "def long():") -> str:
    return "\n    ".join([head, *["pass"] * (lines - 1)]) + "\n"


UPWARD = "core may not import parts; it may import nothing of ours"
NEIGHBOUR = "files in mixers may not import one another"
OFFENDERS = {
    "import": ("heed/core/a.py", "import heed.parts", 1, UPWARD),
    "import a module": ("heed/core/a.py", "import os, heed.parts.masks as masks", 1, UPWARD),
    "from a package": ("heed/core/a.py", "from heed.parts import masks", 1, UPWARD),
    "from heed": ("heed/core/a.py", "from heed import parts", 1, UPWARD),
    "relative": ("heed/core/a.py", "\nfrom ..parts import masks", 2, UPWARD),
    "relative to heed": ("heed/core/a.py", "from .. import parts", 1, UPWARD),
    "relative, deep": ("heed/core/deep/a.py", "from ...parts.masks import causal", 1, UPWARD),
    "relative, in __init__": ("heed/core/__init__.py", "from ..parts import masks", 1, UPWARD),
    "in a function": ("heed/core/a.py", "def f():\n    from heed.parts import masks", 2, UPWARD),
    "in a method": ("heed/core/a.py", "class A:\n    async def f(self):\n        import heed.parts", 3, UPWARD),
    "for types": ("heed/core/a.py", "import typing\nif typing.TYPE_CHECKING:\n    import heed.parts", 3, UPWARD),
    "by call": ("heed/core/a.py", "import importlib\nimportlib.import_module('heed.parts')", 2, UPWARD),
    "by builtin": ("heed/core/a.py", "__import__('heed.parts')", 1, UPWARD),
    "too high": ("heed/core/a.py", "from ....parts import masks", 1, "a relative import climbs out of heed"),
    "all of heed": ("heed/core/a.py", "import heed", 1, "core may not import __init__"),
    "a name of heed": ("heed/train/a.py", "from heed import load", 1, "train may not import __init__"),
    "every name of heed": ("heed/train/a.py", "from heed import *", 1, "train may not import __init__"),
    "sideways": ("heed/serve/a.py", "from ..train import loop", 1, "serve may not import train"),
    "cli": ("heed/cli.py", "from .parts import masks", 1, "cli may not import parts"),
    "catalogue": ("heed/catalogue.py", "from . import runs", 1, "catalogue may not import runs"),
    "neighbour": ("heed/mixers/a.py", "from heed.mixers.b import B", 1, NEIGHBOUR),
    "neighbour, import": ("heed/mixers/a.py", "import heed.mixers.b", 1, NEIGHBOUR),
    "neighbour, relative": ("heed/mixers/a.py", "from .b import B", 1, NEIGHBOUR),
    "neighbour, by dot": ("heed/mixers/a.py", "from . import b", 1, NEIGHBOUR),
    "neighbour, by package": ("heed/mixers/a.py", "from heed.mixers import B", 1, NEIGHBOUR),
    "neighbour, by heed": ("heed/mixers/a.py", "from heed import mixers", 1, NEIGHBOUR),
    "neighbour, below": ("heed/mixers/deep/__init__.py", "from ..b import B", 1, NEIGHBOUR),
    "outside": ("heed/core/a.py", "import scipy.linalg", 1, "core may not import scipy from outside"),
    "outside, from": ("heed/core/a.py", "def f():\n    from rich import print", 2, "core may not import rich"),
    "unknown package": ("heed/lab/a.py", "", 1, "lab is unknown; say where it belongs in docs/architecture.md and in"),
    "unknown module": ("heed/misc.py", "import heed.core", 1, "misc is unknown; say where it belongs"),
    "broken": ("heed/core/a.py", "x = 1\ndef", 2, "does not parse"),
    "long file": ("heed/core/a.py", "x = 1\n" * 401, 1, "401 lines, at most 400"),
    "long test file": ("tests/core/test_a.py", "x = 1\n" * 401, 1, "401 lines, at most 400"),
    "long table in heed": ("heed/core/a.py", "x = [\n" + "    1,\n" * 399 + "]", 1, "401 lines, at most 400"),
    "long function": ("heed/core/a.py", "x = 1\n" + function(60), 2, "long has 60 lines, at most 59"),
    "long coroutine": ("benchmarks/a.py", function(60, "async def long():"), 1, "long has 60 lines, at most 59"),
    "long example": ("examples/a.py", function(60), 1, "long has 60 lines, at most 59"),
    "parameters": ("heed/core/a.py", "def f(a, b, /, c, d, *e, f, g, h, **i): ...", 1, "f has 9 parameters, at most 8"),
    "parameters beside torch's": (
        "heed/core/a.py",
        "from torch import nn\nclass A(nn.Linear):\n    def forward(self, a, b, c, d, e, f, g, h, i): ...",
        3,
        "forward has 9",
    ),
    "parameters of a method": ("tests/a.py", "class A:\n    def f(self, a, b, c, d, e, f, g, h, i): ...", 2, "f has 9"),
}


@pytest.mark.parametrize(("file", "text", "line", "message"), OFFENDERS.values(), ids=OFFENDERS)
def test_an_offender_is_named(tmp_path: Path, file: str, text: str, line: int, message: str) -> None:
    (found,) = plant(tmp_path, {file: text})
    assert found.startswith(f"{file}:{line}: {message}")


def test_all_offenders_are_named_at_once(tmp_path: Path) -> None:
    planted = {file: text for file, text, _, _ in OFFENDERS.values()}
    found = plant(tmp_path, planted)
    assert {line.split(":")[0] for line in found} == set(planted)


@pytest.mark.parametrize("home", MAY_IMPORT)
def test_a_package_may_import_what_the_table_says_and_nothing_else(tmp_path: Path, home: str) -> None:
    others = sorted({*MAY_IMPORT, "__init__"} - {home})
    text = "\n".join(f"from heed.{other} import name" for other in others)
    found = plant(tmp_path, {f"heed/{home}.py": text})
    assert [line.split(";")[0] for line in found] == [
        f"heed/{home}.py:{number}: {home} may not import {other}"
        for number, other in enumerate(others, 1)
        if other not in MAY_IMPORT[home]
    ]


def test_a_clean_tree_has_no_offenders(tmp_path: Path) -> None:
    everything = "".join(f"from heed.{name} import a\n" for name in MAY_IMPORT)
    outside = "from __future__ import annotations\nimport math, torch.nn, numpy as np, pydantic, annotated_types\n"
    table = "TABLE = [\n" + "    1,\n" * 400 + "]\n"
    decorated = "@parametrize([\n" + "    1,\n" * 400 + "])\n"
    files = {
        "heed/__init__.py": everything,
        "heed/__main__.py": everything + "from . import cli\n",
        "heed/cli.py": "from heed import __version__, models\nfrom .verify import run\n",
        "heed/core/__init__.py": "from .a import A\nfrom heed.core import a\n",
        "heed/core/a.py": outside + "from . import b\nfrom .b import B\nimport heed.core.b\n",
        "heed/core/deep/c.py": "from ..a import A\nfrom .d import D\n",
        "heed/mixers/__init__.py": "from .a import A\nfrom heed.mixers.b import B\nfrom . import c\n",
        "heed/mixers/a.py": "import einops\nfrom ..parts import masks\nfrom heed import core, kernels\n",
        "heed/parts/full.py": "x = 1\n" * 400,
        "heed/parts/long.py": "@cache\n" + function(59) + "class A:\n    def f(self, a, b, c, d, *, e, f, g, h): ...\n",
        "heed/parts/torchs.py": "from torch import nn\nclass A(nn.MultiheadAttention):\n"
        f"    def __init__(self, {', '.join('abcdefghijk')}, *, {', '.join(f'l{n}=0' for n in range(9))}): ...\n",
        "heed/parts/data.json": "not Python\n",
        "tests/test_a.py": "import heed.core, scipy\n" + table + decorated + function(59),
        f"{STRANGERS}/long.py": function(60),
        "benchmarks/__main__.py": "from heed.core import a\nfrom heed import load\n",
    }
    assert plant(tmp_path, files) == []


def test_an_empty_tree_is_not_a_clean_one(tmp_path: Path) -> None:
    (found,) = problems(tmp_path)
    assert "looks in the wrong place" in found
