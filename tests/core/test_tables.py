"""Tables hold names and places: both are those of the classes, and nothing is imported before it is asked for."""

from __future__ import annotations

import ast
import gc
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from heed.core.config import Config, kind_of
from heed.core.tables import Named, Table, gc_paused, later
from heed.data import SOURCES
from heed.mixers import CROSSES, MIXERS
from heed.models import ARCHITECTURES, ENCODERS_OF_CLIP, MODELS, MULTIMODAL
from heed.tasks import TASKS
from heed.weights import AUTHORS, FAMILIES
from heed.weights.edits import EDITS

HEED = Path(import_module("heed").__path__[0])
TABLES: dict[str, Table[type[Config]]] = {
    "mixers": MIXERS,
    "crosses": CROSSES,
    "models": MODELS,
    "senses": MULTIMODAL,
    "encoders of clip": ENCODERS_OF_CLIP,
    "architectures": ARCHITECTURES,
    "tasks": TASKS,
    "sources": SOURCES,
    "edits": EDITS,
}


@pytest.mark.parametrize("table", TABLES)
def test_a_kind_is_the_name_of_its_class(table: str) -> None:
    named = TABLES[table].named
    assert {name: kind_of(named[name]) for name in named} == {name: name for name in named}


def test_a_family_is_named_by_all_its_types_and_no_others() -> None:
    assert [(name, family) for family in FAMILIES for name in family.types] == list(FAMILIES.named.items())


def test_all_authors_have_a_model() -> None:
    assert all(callable(model) for model in AUTHORS.values())


def lazies() -> Iterator[tuple[str, str, str]]:
    """Package, module and name of all that a package imports for type checkers, or else later."""
    for path in sorted(HEED.rglob("__init__.py")):
        package = ".".join(("heed", *path.relative_to(HEED).parent.parts))
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and node.orelse:
                for imported in node.body:
                    if isinstance(imported, ast.ImportFrom) and imported.level == 1:
                        for alias in imported.names:
                            yield package, imported.module or alias.name, alias.name


@pytest.mark.parametrize("package", sorted({package for package, _, _ in lazies()}))
def test_what_type_checkers_see_is_what_there_is(package: str) -> None:
    home = import_module(package)
    for module, name in [(module, name) for where, module, name in lazies() if where == package]:
        held = import_module(f"{package}.{module}")
        assert getattr(home, name) is (held if module == name else getattr(held, name)), f"{package}.{name}"
        assert name in dir(home)


@pytest.mark.parametrize("package", sorted({package for package, _, _ in lazies()}))
def test_no_name_is_that_of_a_module(package: str) -> None:
    """Python would give the module, once it is imported."""
    clashes = {name for where, module, name in lazies() if where == package and module != name}
    folder = HEED.joinpath(*package.split(".")[1:])
    assert not clashes & {path.stem for path in folder.iterdir()}


def test_a_name_that_is_not_there_is_said_to_be_missing() -> None:
    with pytest.raises(AttributeError, match=r"module 'heed.mixers' has no attribute 'Atention'"):
        import_module("heed.mixers").Atention  # noqa: B018
    with pytest.raises(ImportError, match="Atention"):
        from heed.mixers import Atention  # type: ignore[attr-defined]  # noqa: F401


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "shelf").mkdir()
    for name in ("__init__", "one", "two"):
        text = f"class {name.title()}:\n    class Inner: ...\n"
        (tmp_path / "shelf" / f"{name}.py").write_text(text if name != "__init__" else "", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("shelf", "shelf.one", "shelf.two"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "shelf"


def test_a_table_is_like_a_tuple_and_imports_what_is_taken(package: str) -> None:
    table: Table[Any] = Table(package, {"a": "one:One.Inner", "b": "one:One.Inner", "c": "two:Two"})
    assert len(table) == 2, "two names of one thing"
    assert "a" in table.named
    assert "d" not in table.named
    assert list(table.named) == ["a", "b", "c"]
    assert "shelf.one" not in sys.modules
    one = table[0]
    assert "shelf.two" not in sys.modules
    assert one is table.named["b"]
    assert one.__qualname__ == "One.Inner"
    assert tuple(table) == (one, table.named["c"]) == table[:]
    assert table[-1] is table.named["c"]
    assert one in table


def test_tables_add_up(package: str) -> None:
    first: Table[Any] = Table(package, {"a": "one:One"})
    both = first + Table(package, {"c": "two:Two"})
    assert list(both.named) == ["a", "c"]
    assert "shelf.one" not in sys.modules
    assert [thing.__name__ for thing in both] == ["One", "Two"]


def test_a_name_is_imported_once(package: str) -> None:
    get, names = later(package, {"Two": "two"}, Table(package, {"a": "one:One.Inner"}))
    home = import_module(package)
    assert {"One", "Two"} <= set(names())
    assert get("Two") is home.Two
    assert get("One").__name__ == "One"
    with pytest.raises(AttributeError, match=r"module 'shelf' has no attribute 'Three'"):
        get("Three")


def test_a_place_that_is_not_there_is_an_error(package: str) -> None:
    with pytest.raises(KeyError, match="b"):
        Named[Any](package, {"a": "one:One"})["b"]
    with pytest.raises(AttributeError, match="Tow"):
        Named[Any](package, {"a": "two:Tow"})["a"]


def test_the_garbage_collector_is_paused_and_goes_on_as_before() -> None:
    assert gc.isenabled()
    with gc_paused(), gc_paused():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ValueError, match="broken"), gc_paused():
        raise ValueError("broken")
    assert gc.isenabled()
    gc.disable()
    try:
        with gc_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
