"""Another project's `heed` beside ours is noticed; an earlier or an editable heed of ours is not taken for one."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import heed
from heed.installed import warn_of_namesake

THEIRS = "from heed.client import Client\n"
OURS = "from .core.tables import gc_paused\n"


def digest(text: str) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def site(folder: Path, init: str, **distributions: dict[str, str]) -> str:
    """A folder of packages: heed/__init__.py as it was left, and what each distribution says that it installed."""
    package = folder / "heed"
    package.mkdir()
    (package / "__init__.py").write_text(init)
    for name, files in {"heed_attention": {"heed/__init__.py": OURS}, **distributions}.items():
        metadata = folder / f"{name}-0.1.0.dist-info"
        metadata.mkdir()
        rows = [f"{path},{digest(text)},{len(text)}" for path, text in files.items()]
        (metadata / "RECORD").write_text("\n".join([*rows, f"{metadata.name}/RECORD,,", ""]))
    return str(package)


NAMESAKE = {"heed/__init__.py": THEIRS, "heed/client.py": "class Client: ...\n"}


def test_another_project_in_our_folder_is_told(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="another project") as told:
        warn_of_namesake(site(tmp_path, OURS, heed=NAMESAKE))
    (message,) = (str(warning.message) for warning in told)
    assert str(tmp_path / "heed") in message
    assert "pip uninstall -y heed\n" in message
    assert message.endswith("pip install --force-reinstall --no-deps heed-attention")


def test_where_its_init_took_the_place_of_ours_nothing_is_imported(tmp_path: Path) -> None:
    with pytest.raises(ImportError, match="pip install --force-reinstall --no-deps heed-attention"):
        warn_of_namesake(site(tmp_path, THEIRS, heed=NAMESAKE))


@pytest.mark.parametrize(
    "distributions",
    [
        {},
        {"heed": {"heed/__init__.py": OURS, "heed/core/contract.py": ""}},  # an earlier heed of ours, before its name
        {"heed": {"__editable__.heed-0.1.0.pth": ""}},  # an editable install: no file here
        {"heed": {}},  # metadata without files
        {"heed_tools": NAMESAKE, "headed": NAMESAKE},  # other names
    ],
    ids=["alone", "earlier", "editable", "empty", "others"],
)
def test_what_is_no_namesake_is_silent(tmp_path: Path, distributions: dict[str, dict[str, str]]) -> None:
    with warnings.catch_warnings(record=True) as told:
        warn_of_namesake(site(tmp_path, OURS, **distributions))
    assert not told


def test_metadata_without_a_record_and_an_archive_are_silent(tmp_path: Path) -> None:
    package = site(tmp_path, OURS)
    (tmp_path / "heed-2.0.dist-info").mkdir()
    with warnings.catch_warnings(record=True) as told:
        warn_of_namesake(package)
        warn_of_namesake(str(tmp_path / "archive.zip" / "heed"))
    assert not told


@pytest.mark.parametrize("statement", ["import heed", "import heed, heed.mixers, heed.core.errors", "import heed.cli"])
def test_an_import_tells_it_once(tmp_path: Path, statement: str) -> None:
    """The package as it is, reached by a link, beside made-up metadata."""
    site(tmp_path, OURS, heed=NAMESAKE)
    (tmp_path / "heed" / "__init__.py").unlink()
    (tmp_path / "heed").rmdir()
    (tmp_path / "heed").symlink_to(Path(heed.__file__).parent)
    run = subprocess.run(
        [sys.executable, "-c", statement],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stderr.count("another project") == 1, run.stderr
