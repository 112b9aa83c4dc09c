"""Mixers of other packages: registered, or declared as entry points; recipes, laws, list, run folders, errors."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any, Literal

import pytest

import heed
from heed.catalogue import entries
from heed.core.contract import Mixer, MixerConfig
from heed.core.errors import ConfigError
from heed.core.laws import LAWS
from heed.core.tables import Table
from heed.mixers import MIXERS, Attention, Fourier
from heed.models import Decoder
from heed.verify import proofs

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = re.search(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.DOTALL)
KEPT = {"kind": "kept", "package": "tests"}


class Kept(Fourier):
    """The mean of a Fourier transform, under another name."""

    class Config(MixerConfig):
        kind: Literal["kept"] = "kept"
        gain: int = 1

        def build(self, width: int) -> Kept:
            return Kept()


def decoder(mixer: Any) -> Decoder.Config:
    return Decoder.Config.load({"vocabulary": 5, "width": 8, "depth": 1, "mixer": mixer})


def test_a_registered_mixer_is_known_everywhere() -> None:
    assert heed.register(Kept) is Kept
    own = Decoder.Config(vocabulary=5, width=8, depth=2, mixer=(Kept.Config(gain=2), Attention.Config(heads=2)))
    data = own.dump()
    assert data["mixer"][0] == {"kind": "kept", "gain": 2, "package": "tests"}
    assert "package" not in data["mixer"][1]
    assert (
        Decoder.Config.load(data)
        == own
        == decoder([{"kind": "kept", "gain": 2}, {"kind": "attention", "heads": 2}]).model_copy(update={"depth": 2})
    )
    assert isinstance(own.build().stack.layers[0].mixer, Kept)
    assert MIXERS[-1] is MIXERS.named["kept"] is Kept.Config
    assert len(MIXERS) == len(list(MIXERS)) == len(MIXERS.named)
    (entry,) = [entry for entry in entries() if entry.name == "kept"]
    assert entry.note.startswith("from tests; ")
    found = [proof() for proof in proofs(["kept"])]
    assert found
    assert all(proof.holds for proof in found)


def test_a_mixer_may_hold_one_of_another_package() -> None:
    heed.register(Kept.Config)  # its configuration does as well
    data = {"kind": "branches", "mixers": [{"kind": "kept"}, {"kind": "attention", "heads": 2}]}
    assert decoder(data).dump()["mixer"][0]["mixers"][0]["package"] == "tests"


def test_problems_of_an_outside_mixer_are_told_in_place() -> None:
    heed.register(Kept)
    with pytest.raises(ConfigError, match=r"mixer\.0\.gian is unknown; did you mean gain\?"):
        decoder({"kind": "kept", "gian": 3})
    with pytest.raises(ConfigError, match=r"mixer\.0\.kind is 'ketp'; did you mean kept\?"):
        decoder({"kind": "ketp"})


def test_what_is_not_registered_is_told_to_be() -> None:
    with pytest.raises(ConfigError, match=r"write @heed\.register above the class that Kept\.Config belongs to"):
        Decoder.Config(vocabulary=5, width=8, depth=1, mixer=Kept.Config())
    with pytest.raises(ConfigError, match=r"known: attention.*another package may bring it"):
        decoder({"kind": "zzz"})
    with pytest.raises(ConfigError, match=r"from the package tests, which is not installed here.*pip install tests"):
        decoder(KEPT)
    with pytest.raises(ConfigError, match=r"it was registered by a script"):
        decoder({"kind": "kept", "package": "__main__"})


def test_a_class_that_is_defined_again_takes_the_place_of_the_old_one() -> None:
    """As a notebook does whose cell runs twice."""
    first, second = (type("Cell", (Kept,), {"Config": type("Config", (Kept.Config,), {})}) for _ in range(2))
    for own in (first, second):
        heed.register(own)
    assert MIXERS.named["kept"] is second.Config  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="is not the class that"):
        Decoder.Config(vocabulary=5, width=8, depth=1, mixer=first.Config())  # type: ignore[attr-defined]


def test_a_name_has_one_meaning() -> None:
    class Other(Fourier):
        class Config(MixerConfig):
            kind: Literal["kept"] = "kept"

            def build(self, width: int) -> Mixer[Any]:
                return Fourier()

    heed.register(Kept)
    with pytest.raises(
        ConfigError, match=r"'kept' of heed\.mixers is brought by tests \(.*:Kept\) and by tests \(.*Other"
    ):
        heed.register(Other)

    class Shadow(Fourier):
        class Config(MixerConfig):
            kind: Literal["attention"] = "attention"

            def build(self, width: int) -> Mixer[Any]:
                return Fourier()

    with pytest.raises(ConfigError, match="'attention' of heed.mixers is brought by heed and by tests"):
        heed.register(Shadow)


def test_what_is_no_mixer_is_refused() -> None:
    class Nameless(Fourier):
        class Config(MixerConfig):
            def build(self, width: int) -> Mixer[Any]:
                return Fourier()

    wrongs: dict[str, Any] = {"is not a mixer with a configuration": Path, "has no kind": Nameless}
    wrongs[r"takes no name; leave it out, and give its Config kind: Literal\['average'\]"] = "average"
    for message, wrong in wrongs.items():
        with pytest.raises(ConfigError, match=message):
            heed.register(wrong)


def test_a_closed_table_takes_nothing_from_outside() -> None:
    table: Table[Any] = Table("heed.mixers", {"attention": "attention:Attention.Config"})
    assert table.named.outside is None
    assert list(table.named) == ["attention"]
    assert "average" not in table.named
    with pytest.raises(KeyError):
        table.named["average"]


# --- a real package, in processes of its own ---


def package(site: Path, name: str, entry: str, code: str, version: str = "0.3") -> None:
    """An installed package, as far as Python can tell: its code, and what its metadata declares."""
    module = name.replace("-", "_")
    folder, info = site / module, site / f"{module}-{version}.dist-info"
    folder.mkdir(parents=True)
    info.mkdir()
    (folder / "__init__.py").write_text("", encoding="utf-8")
    (folder / "mixers.py").write_text(code, encoding="utf-8")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[heed.mixers]\n{entry}\n", encoding="utf-8")


def run(code: str, cwd: Path, *sites: Path) -> str:
    """What a program prints that has these folders on its path, and heed."""
    paths = os.pathsep.join(map(str, (*sites, ROOT)))
    done = subprocess.run(
        [sys.executable, "-c", dedent(code)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": paths, "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    return done.stdout


TRAIN = """
    import sys
    import heed
    assert "average_mixers" not in sys.modules and "importlib.metadata" not in sys.modules  # nobody asked yet
    from heed.cli import main
    sys.argv = ["heed", "train", "characters", "--data", "book.txt", "--out", "run", "--set", "training.steps=2",
                "--set", "model.mixer.0.kind=average", "--set", "model.width=16", "--set", "training.batch=64"]
    main()
"""
USE = """
    import json
    import torch
    import heed
    logits, _ = heed.load("run").model(torch.tensor([[1, 2, 3]]))
    found = {"logits": logits.shape[:2]}
    from heed.verify import proofs
    found["proven"] = [proof().holds for proof in proofs(["average"])]
    from heed.catalogue import entries
    found["listed"] = [entry.note for entry in entries() if entry.name == "average"]
    print(json.dumps(found))
"""
FAIL = """
    import heed
    try:
        {code}
    except heed.HeedError as error:
        print(error)
"""


def test_a_package_trains_saves_and_loads_elsewhere(tmp_path: Path) -> None:
    """Recipe, two steps, run folder; another process loads, proves and lists; one without the package says so."""
    assert EXAMPLE is not None
    site = tmp_path / "site"
    package(site, "average-mixers", "average = average_mixers.mixers:Average", EXAMPLE[1])
    (tmp_path / "book.txt").write_text("".join(f"line {n} of a book\n" for n in range(400)), encoding="utf-8")
    run(TRAIN, tmp_path, site)
    config = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))
    assert config["model"]["mixer"] == [{"kind": "average", "package": "average-mixers 0.3"}]
    found = json.loads(run(USE, tmp_path, site).splitlines()[-1])
    assert found["logits"] == [1, 3]
    assert len(found["proven"]) > len(LAWS)
    assert all(found["proven"])
    assert found["listed"][0].startswith("from average-mixers 0.3; remembers width + 1 numbers")
    said = run(FAIL.format(code='heed.load("run")'), tmp_path)
    assert (
        "config.json cannot be used: model.mixer.0.kind is 'average'; it is from the package average-mixers 0.3" in said
    )
    assert "pip install average-mixers" in said


ASK = 'print(heed.models.Decoder.Config.load({"width": 8, "depth": 1, "mixer": {"kind": "average"}}))'


def test_packages_that_quarrel_are_both_named(tmp_path: Path) -> None:
    assert EXAMPLE is not None
    one, two, shadow = tmp_path / "one", tmp_path / "two", tmp_path / "shadow"
    package(one, "averages", "average = averages.mixers:Average", EXAMPLE[1])
    package(two, "means", "average = means.mixers:Average", EXAMPLE[1], "1.2")
    package(shadow, "shadows", "attention = shadows.mixers:Average", EXAMPLE[1])
    assert "kind" not in run(FAIL.format(code=ASK), tmp_path, one)  # alone it is fine
    said = run(FAIL.format(code=ASK), tmp_path, one, two)
    assert "averages 0.3 (averages.mixers:Average)" in said
    assert "means 1.2 (means.mixers:Average)" in said
    assert "brought by heed and by shadows 0.3" in run(FAIL.format(code=ASK), tmp_path, shadow)


LISTED = """
    import warnings
    import heed
    from heed.mixers import MIXERS, Attention
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert Attention.Config in list(MIXERS)
    print(*(warning.message for warning in told), sep="\\n")
    try:
        heed.models.Decoder.Config.load({"width": 8, "depth": 1, "mixer": {"kind": "average"}})
    except heed.HeedError as error:
        print("asked:", error)
"""
BROKEN = {
    "average = broken.nowhere:Average": "average = 'broken.nowhere:Average' of the package broken 0.3 cannot be im",
    "average = broken.mixers:Cell": "cannot be used: .* is not a mixer with a configuration",
    "middle = broken.mixers:Average": "has the kind 'average'; the entry point and the kind must have one name",
}


@pytest.mark.parametrize("entry", BROKEN)
def test_a_broken_package_is_named_and_does_not_break_lists(tmp_path: Path, entry: str) -> None:
    assert EXAMPLE is not None
    package(tmp_path / "site", "broken", entry, EXAMPLE[1])
    said = run(LISTED, tmp_path, tmp_path / "site")
    assert re.search(f"left out: .*{BROKEN[entry]}", said)
    if entry.startswith("average"):
        assert re.search(f"asked: .*{BROKEN[entry]}", said)
