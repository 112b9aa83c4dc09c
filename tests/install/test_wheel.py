"""The wheel holds every file of the package, and the sdist builds the same wheel."""

from __future__ import annotations

import zipfile
from email.parser import HeaderParser
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import heed
from tools import dist as bundle
from tools.dist import ROOT, build_wheel, tracked, unpacked


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return bundle.build(tmp_path_factory.mktemp("built"))


def test_the_wheel_holds_every_file_of_the_package(built: tuple[Path, Path]) -> None:
    """Sources of kernels, recipes, bugs, py.typed: whatever git lists below heed/, byte for byte, and nothing more."""
    found = {name: data for name, data in contents(built[1]).items() if ".dist-info/" not in name}
    wanted = {name: (ROOT / name).read_bytes() for name in tracked("heed")}
    assert len(wanted) > 400, "this test looks in the wrong place"
    assert sorted(found) == sorted(wanted), f"differ: {sorted(found.keys() ^ wanted.keys())}"
    assert found == wanted


def test_the_wheel_brings_the_page_of_the_studio(built: tuple[Path, Path]) -> None:
    """As it was built from studio/web, which the wheel does not bring: nothing of Node is needed to use it."""
    held = contents(built[1])
    assert b'<meta name="sources"' in held["heed/studio/page.html"]
    assert not [name for name in held if name.endswith((".svelte", "package.json"))]


def test_a_working_copy_builds_the_same_wheel(built: tuple[Path, Path], tmp_path: Path) -> None:
    """The wheel above comes from the sdist; this one from the project's files."""
    project = built[0].parents[1] / "project"
    assert contents(build_wheel(project, tmp_path / "direct")) == contents(built[1])


def test_the_metadata_says_who_we_are(built: tuple[Path, Path]) -> None:
    held = contents(built[1])
    folder = f"heed_attention-{heed.__version__}.dist-info"
    said: Any = HeaderParser().parsestr(held[f"{folder}/METADATA"].decode())
    assert (said["Name"], said["Version"]) == ("heed-attention", heed.__version__)
    assert said["Requires-Python"] == ">=3.11"
    assert held[f"{folder}/entry_points.txt"].decode().count("heed = heed.") == 2  # the command, the plugin of pytest
    assert built[1].name.startswith(f"heed_attention-{heed.__version__}-py3-none-")


def test_the_sdist_has_no_second_recipes(built: tuple[Path, Path], tmp_path: Path) -> None:
    """`recipes` at the root of the project is a link for readers; an archive for others needs none."""
    held = unpacked(built[0], tmp_path)
    assert not (held / "recipes").exists()
    assert (held / "heed" / "recipes" / "characters.toml").is_file()
    assert (held / "LICENSE").is_file()
    assert not list(held.glob("tests/**/*.py")), "a part of the tests would be none: they need recordings"


def test_setuptools_is_as_new_as_the_build_asks_for() -> None:
    assert int(version("setuptools").split(".")[0]) >= 77
