"""Where strangers' files belong: packages, folders without `__init__.py`, neighbours whose names others have too."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from heed.check import CannotCheck
from heed.check.foreign.target import locate
from tests.check.foreign.trees import attention, grow


@pytest.fixture(autouse=True)
def elsewhere(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory is not above the files, unless a test says so."""
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))


def globals_of(target: str) -> dict[str, object]:
    """The names beside what a target names."""
    found: dict[str, object] = vars(sys.modules[locate(target).found.__module__])
    return found


def test_a_file_in_a_package_has_its_real_name_and_its_relatives(tmp_path: Path) -> None:
    grow(
        tmp_path,
        {
            "kiwi/__init__.py": "FRUIT = 1",
            "kiwi/seeds/__init__.py": "",
            "kiwi/seeds/att.py": "from .. import FRUIT\nfrom ..skin import HAIR\nfrom . import core\nATTENTION",
            "kiwi/skin.py": "HAIR = 2",
            "kiwi/seeds/core.py": "from kiwi.skin import HAIR",
        },
    )
    found = locate(f"{tmp_path / 'kiwi/seeds/att.py'}:Attention").found
    assert found.__module__ == "kiwi.seeds.att"
    assert (vars(sys.modules["kiwi.seeds.att"])["FRUIT"], sys.modules["kiwi.skin"].HAIR) == (1, 2)
    assert str(tmp_path) not in sys.path


@pytest.mark.parametrize(
    ("imports", "helper"),
    [
        ("from plum.layers.a import Y", "plum/layers/a.py"),  # from the root of the repository
        ("from pear.z import Y", "pear/z.py"),  # a folder beside its own
        ("from a import Y", "plum/a.py"),  # as when the file itself is run
        ("from .layers.a import Y", "plum/layers/a.py"),
        ("from ..pear.z import Y", "pear/z.py"),
        ("from lime.z import Y", "src/lime/z.py"),
    ],
)
def test_folders_without_init(tmp_path: Path, imports: str, helper: str) -> None:
    grow(tmp_path, {"setup.py": "", helper: "Y = 7", "plum/att.py": f"{imports}\nATTENTION"})
    assert globals_of(f"{tmp_path / 'plum/att.py'}:Attention")["Y"] == 7


def test_without_signs_of_a_repository_nothing_above_is_imported(tmp_path: Path) -> None:
    """Not even if it is asked for: a file in a shared folder is no part of what the user named."""
    grow(tmp_path, {"planted.py": "raise SystemExit('it was run')", "mine/att.py": "import planted\nATTENTION"})
    located = locate(f"{tmp_path / 'mine/att.py'}:Attention")
    assert any("stubbed: planted (not installed" in note for note in located.notes)


def test_nothing_is_imported_that_nothing_asks_for(tmp_path: Path) -> None:
    bomb = "raise SystemExit('it was run')"
    grow(tmp_path, {"setup.py": bomb, "conftest.py": bomb, "beside.py": bomb, "sub/__init__.py": bomb})
    assert locate(attention(tmp_path)).notes == ()


def test_a_package_begins_where_its_relative_imports_lead(tmp_path: Path) -> None:
    """Here not the file itself but one that it imports climbs higher."""
    files = {
        "quince/models/att.py": "from .layers.a import Q\nATTENTION",
        "quince/models/layers/a.py": "from ...utils.z import Q",
        "quince/utils/z.py": "Q = 3",
    }
    grow(tmp_path, files)
    assert globals_of(f"{tmp_path / 'quince/models/att.py'}:Attention")["Q"] == 3


def test_folders_that_are_no_names(tmp_path: Path) -> None:
    grow(tmp_path, {"my-models v1.0/att.py": "from .helper import Y\nATTENTION", "my-models v1.0/helper.py": "Y = 5"})
    assert globals_of(f"{tmp_path / 'my-models v1.0/att.py'}:Attention")["Y"] == 5


def test_the_file_is_meant_and_not_the_package_beside_it(tmp_path: Path) -> None:
    grow(tmp_path, {"fig/__init__.py": "", "fig/att.py": "ATTENTION", "fig/att/__init__.py": ""})
    found = locate(f"{tmp_path / 'fig/att.py'}:Attention").found
    assert sys.modules[found.__module__].__file__ == str(tmp_path / "fig/att.py")


# --- names that others have too ---


def test_neighbours_named_like_the_standard_library_break_nothing(tmp_path: Path) -> None:
    bomb = "raise RuntimeError('a neighbour was imported for the standard library')"
    grow(tmp_path, {"random.py": bomb, "types.py": bomb, "tempfile.py": bomb, "colorsys.py": bomb})
    sys.modules.pop("colorsys", None)  # of the standard library, and rarely imported yet
    target = attention(tmp_path, "import random, types, colorsys\nR = random.random()\nC = colorsys.rgb_to_hsv")
    names = globals_of(target)
    assert names["types"] is sys.modules["types"]
    assert importlib.import_module("colorsys").__file__ != str(tmp_path / "colorsys.py")


def test_a_neighbour_is_meant_before_what_is_installed_and_only_by_its_neighbours(tmp_path: Path) -> None:
    """`tokenizers` is a package here, which transformers imports: it must go on to get that."""
    grow(tmp_path, {"tokenizers.py": "MINE = 3", "safetensors.py": "MINE = 4"})
    names = globals_of(attention(tmp_path, "import tokenizers\nfrom safetensors import MINE"))
    assert (vars(names["tokenizers"])["MINE"], names["MINE"]) == (3, 4)
    for name in ("tokenizers", "safetensors"):
        assert not hasattr(importlib.import_module(name), "MINE")


def test_one_projects_utils_are_not_anothers(tmp_path: Path) -> None:
    for name in ("one", "two"):
        grow(tmp_path, {f"{name}/utils.py": f"WHOSE = '{name}'", f"{name}/deep/utils.py": ""})
    targets = {name: attention(tmp_path / name, "import utils") for name in ("one", "two")}
    for name in ("one", "two", "one"):
        assert vars(globals_of(targets[name])["utils"])["WHOSE"] == name


@pytest.mark.parametrize("name", ["einops.py", "flash_attn.py"])
def test_a_file_that_imports_its_namesake_does_not_import_itself(tmp_path: Path, name: str) -> None:
    """The one is installed here, the other is not."""
    package = name.removesuffix(".py")
    target = attention(tmp_path, f"from {package} import rearrange\nimport {package}.layers.torch", name=name)
    located = locate(target)
    beside = vars(sys.modules[located.found.__module__])["rearrange"]
    installed = importlib.util.find_spec(package) is not None and sys.modules[package] is not sys.modules.get(
        located.found.__module__
    )
    assert (beside.__module__.startswith("einops") if installed else "flash_attn" in repr(beside)) is True
    assert any("stubbed: flash_attn" in note for note in located.notes) is (not installed)


def test_what_the_process_has_imported_already_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(tmp_path, {"mango/__init__.py": "", "mango/att.py": "ATTENTION"})
    monkeypatch.syspath_prepend(tmp_path)
    theirs = importlib.import_module("mango.att")
    assert locate(f"{tmp_path / 'mango/att.py'}:Attention").found is theirs.Attention


def test_a_file_that_was_changed_is_read_again(tmp_path: Path) -> None:
    grow(tmp_path, {"helper.py": "Y = 1"})
    target = attention(tmp_path, "from helper import Y")
    first = locate(target).found
    assert locate(target).found is first
    grow(tmp_path, {"helper.py": "Y = 12"})
    assert globals_of(target)["Y"] == 12


def test_imports_inside_functions_work_later(tmp_path: Path) -> None:
    grow(tmp_path, {"inner.py": "def three():\n    return 3"})
    target = attention(tmp_path, "def late():\n    from inner import three\n    return three()")
    assert globals_of(target)["late"]() == 3  # type: ignore[operator]


def test_modules_imported_by_name_are_found_too(tmp_path: Path) -> None:
    grow(tmp_path, {"guava.py": "Y = 9", "nuts/a.py": "Y = 8"})
    text = "import importlib\nY = importlib.import_module('guava').Y + importlib.import_module('nuts.a').Y"
    assert globals_of(attention(tmp_path, f"import nuts.a\n{text}"))["Y"] == 17


def test_paths_that_a_file_adds_are_looked_in(tmp_path: Path) -> None:
    grow(tmp_path, {"third_party/lychee.py": "Y = 6"})
    text = """
        import os, sys
        sys.path.insert(0, os.path.join(os.path.dirname(__file__), "third_party"))
        def late():
            from lychee import Y
            return Y
    """
    before = list(sys.path)
    assert globals_of(attention(tmp_path, text))["late"]() == 6  # type: ignore[operator]
    assert sys.path == before


# --- dotted names ---


@pytest.mark.parametrize("folder", ["", "src/"])
@pytest.mark.parametrize("form", ["{}.att:Attention", "{}.att.Attention", "{}/att:Attention", "{}/att.py::Attention"])
def test_names_of_the_working_directory(
    tmp_path: Path, folder: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(tmp_path, {f"{folder}papaya/__init__.py": "", f"{folder}papaya/att.py": "from .b import c\nATTENTION"})
    grow(tmp_path, {f"{folder}papaya/b.py": "c = 1"})
    monkeypatch.chdir(tmp_path)
    place = "papaya" if "/" not in form else f"{folder}papaya"
    found = locate(form.format(place)).found
    assert sys.modules[found.__module__].__file__ == str(tmp_path / f"{folder}papaya/att.py")


def test_names_of_what_is_installed() -> None:
    import torch

    for target in ("torch.nn:MultiheadAttention", "torch.nn.MultiheadAttention"):
        assert locate(target).found is torch.nn.MultiheadAttention


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nowhere.py:A", "there is no file nowhere.py"),
        ("no/where:A", "there is no file no/where"),
        ("einops_of_mars.layers:A", "there is no module einops_of_mars; is it installed (run: pip install"),
        ("torch.nn.no_such:A", "there is no module torch.nn.no_such"),
        ("attention", "names no class or function; write path/to/file.py:Name"),
        (":A", "names no class or function"),
    ],
)
def test_what_is_not_there(target: str, words: str) -> None:
    with pytest.raises(CannotCheck) as error:
        locate(target)
    assert words in str(error.value)


def test_an_installed_module_that_cannot_be_imported_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(tmp_path, {"broken_one.py": "import os\n1 / 0", "needs_more.py": "import skimage_of_mars"})
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(CannotCheck, match=r"broken_one\.py:2 was skipped: ZeroDivisionError: division by zero"):
        locate("broken_one:A")
    with pytest.raises(CannotCheck, match=r"stubbed: skimage_of_mars \(not installed; run: pip install"):
        locate("needs_more:A")


def test_an_installed_package_that_needs_more_is_stood_in_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its other modules, and what it takes of itself by its own name, are there; what is missing is told."""
    files = {"__init__.py": "from durian.b import c\nfrom durian.att import Attention", "b.py": "c = 1"}
    files["att.py"] = "from skimage_of_mars import draw\nfrom durian import c\nATTENTION\nassert c == 1"
    grow(tmp_path / "durian", files)
    monkeypatch.syspath_prepend(tmp_path)
    located = locate("durian.att:Attention")
    assert located.found.__module__ == "durian.att"
    assert any("stubbed: skimage_of_mars" in note for note in located.notes)
    assert not any("durian" in note for note in located.notes)
