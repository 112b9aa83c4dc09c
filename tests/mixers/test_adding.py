"""A new mixer costs one file and one line: the tools that work from the table then know it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from heed.core.config import kind_of
from heed.core.contract import MixerConfig
from heed.mixers import MIXERS

ROOT = Path(__file__).resolve().parents[2]
LINE = '        "average": "average:Average.Config",\n'
ASKED = """
from benchmarks.mechanisms import _mixer
from heed.catalogue import entries
from heed.core.laws import LAWS, Case
from heed.mixers import MIXERS, Average
from heed.runs.recipe import Recipe
from heed.verify import proofs

assert Average.Config is MIXERS.named["average"]
assert [entry.table for entry in entries() if entry.name == "average"] == ["mixers"]
assert all(law(Average.Config().build(24), Case.make(24)).holds for law in LAWS)
found = [proof() for proof in proofs(["average"])]
assert found and all(proof.holds for proof in found), found
page = _mixer(Average.Config)
assert page.name == "average.md" and "average.svg" in page.drawings
recipe = Recipe.read("recipes/characters.toml", ["model.mixer.0.kind=average"])
assert recipe.model.sized(7).build().stack.layers[0].mixer.__class__ is Average
"""


def test_one_file_and_one_line(tmp_path: Path) -> None:
    """The example of CONTRIBUTING.md, in a package that but for it is this one."""
    own = tmp_path / "heed"
    linked(ROOT / "heed", own, apart="mixers")
    linked(ROOT / "heed" / "mixers", own / "mixers", apart="__init__.py")
    example = re.search(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    (own / "mixers" / "average.py").write_text(example[1], encoding="utf-8")
    table = (ROOT / "heed" / "mixers" / "__init__.py").read_text(encoding="utf-8")
    first = table.index('        "attention":')
    (own / "mixers" / "__init__.py").write_text(table[:first] + LINE + table[first:], encoding="utf-8")
    paths = os.pathsep.join((str(tmp_path), str(ROOT)))
    done = subprocess.run(
        [sys.executable, "-c", ASKED],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths, "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr


def linked(folder: Path, own: Path, *, apart: str) -> None:
    """A folder of links to all that another one holds but one thing."""
    own.mkdir()
    for path in folder.iterdir():
        if path.name not in (apart, "__pycache__"):
            (own / path.name).symlink_to(path)


@pytest.mark.parametrize("config", MIXERS, ids=kind_of)
def test_a_mixers_file_opens_with_its_origin_and_year(config: type[MixerConfig]) -> None:
    """What users search for: the mechanism's name, and in brackets its authors and the year."""
    opening = (import_module(config.__module__).__doc__ or "").splitlines()[0]
    years = set(re.findall(r"\b(?:19|20)\d\d\b", opening))
    assert years & set(re.findall(r"\b(?:19|20)\d\d\b", config.paper)), opening
