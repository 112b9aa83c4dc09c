"""Configuration: every problem at once, with its place, what was given, what is allowed and what was meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import pytest
from pydantic import Strict

from heed.core.config import Config, OneOf, override, read_data
from heed.core.errors import ConfigError
from heed.data import SOURCES
from heed.decode import STRATEGIES
from heed.mixers import MIXERS, Attention
from heed.models import ARCHITECTURES, MODELS, Decoder, Seq2seq, transformer
from heed.parts.feedforward import FEEDFORWARDS
from heed.parts.layers.norms import NORMS
from heed.parts.masks import MASKS, Causal, Window
from heed.parts.positions import POSITIONS, Rope
from heed.parts.residual.wiring import WIRINGS
from heed.parts.scores import SCORES
from heed.runs import Recipe, Training
from heed.runs.training import AVERAGES, SCHEDULES
from heed.tasks import TASKS
from heed.text import TOKENIZERS

EVERY: tuple[type[Config], ...] = (
    *MIXERS,
    *FEEDFORWARDS,
    *MASKS,
    *POSITIONS,
    *NORMS,
    *WIRINGS,
    *ARCHITECTURES,
    *TOKENIZERS,
    *SOURCES,
    *TASKS,
    *STRATEGIES,
    *SCHEDULES,
    *AVERAGES,
    Training,
    Recipe,
    *SCORES,
    *MODELS,
)
SMALL = {"kind": "decoder", "vocabulary": 9, "width": 8, "depth": 2}


def problems(data: dict[str, Any], kind: type[Config] = Decoder.Config) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        kind.load(data)
    return list(caught.value.problems)


def test_every_problem_is_reported_at_once() -> None:
    found = problems(
        {
            "width": "8",
            "dpeth": 2,
            "vocabulary": 0,
            "mixer": [{"kind": "attention", "hedas": 3, "mask": {"kind": "window", "back": -1}}, {"kind": "atention"}],
            "wiring": {"kind": "pre", "final": 1},
            "dropout": 1.0,
        }
    )
    assert found == [
        "width is '8'; it must be a valid integer",
        "depth is missing",
        "mixer.0.mask.back is -1; it must be greater than or equal to 0",
        "mixer.0.hedas is unknown; did you mean heads?",
        "mixer.1.kind is 'atention'; did you mean attention?",
        "wiring.final is 1; it must be a valid boolean",
        "dropout is 1.0; it must be less than 1",
        "vocabulary is 0; it must be greater than 0",
        "dpeth is unknown; did you mean depth?",
    ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mixer": {"kind": "attention", "heads": 4, "kv_heads": 3}}, "4 heads cannot share kv_heads = 3 evenly"),
        ({"mixer": {"heads": 4}}, "mixer.0 is {'heads': 4}, which has no kind; name one of attention, "),
        ({"mixer": 3}, "mixer is 3"),
        ({"position": {"kind": "alibi"}}, "position.kind is 'alibi'; known:"),
        ({"norm": {"kind": "zzz"}}, "norm.kind is 'zzz'; known: "),
        ({"foo": 1}, "foo is unknown; known: boxes, cap"),
        ({"mixer": []}, "mixer is []; tuple should have at least 1 item"),
        (
            {"mixer": {"kind": "attention", "mask": "causal"}},
            "mixer.0.mask is 'causal'; give a table with kind = one of and",
        ),
        ({"mixer": {"kind": "attention", "mask": {"kind": "and", "parts": []}}}, "should have at least 1 item"),
    ],
)
def test_one_problem_in_words(change: dict[str, Any], words: str) -> None:
    (found,) = problems({**SMALL, **change})
    assert words in found


def test_python_is_checked_like_a_file() -> None:
    with pytest.raises(ConfigError, match="back is -1; it must be greater than or equal to 0"):
        Window(back=-1)
    with pytest.raises(ConfigError, match="heads is 2.5; it must be a valid integer"):
        Attention.Config(heads=2.5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="hedas is unknown; did you mean heads"):
        Attention.Config(hedas=3)  # type: ignore[call-arg]


def test_a_configuration_is_a_frozen_hashable_value() -> None:
    one, same = Attention.Config(mask=Window(back=3)), Attention.Config(mask=Window(back=3))
    assert one == same
    assert hash(one) == hash(same)
    assert one != Attention.Config(mask=Causal())
    with pytest.raises(Exception, match="frozen"):
        one.heads = 3  # type: ignore[misc]
    assert repr(one) == "Attention.Config(mask=Window(back=3))"


@pytest.mark.parametrize("suffix", [".toml", ".json"])
def test_files_round_trip(tmp_path: Path, suffix: str) -> None:
    config = transformer(50)
    config.write(tmp_path / f"model{suffix}")
    assert Seq2seq.Config.read(tmp_path / f"model{suffix}") == config
    assert [path.name for path in tmp_path.iterdir()] == [f"model{suffix}"]  # nothing of the writing is left


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transformer(50).write(tmp_path / "a.json")
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        transformer(60).write(tmp_path / "a.json")
    assert Seq2seq.Config.read(tmp_path / "a.json") == transformer(50)


def test_overrides_are_dotted_and_a_new_kind_starts_anew(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({**SMALL, "mixer": [{"kind": "attention", "heads": 2}]}))
    read = Decoder.Config.read(
        tmp_path / "a.json",
        [
            "width=16",
            "mixer.0.mask.kind=window",
            "mixer.0.mask.back=5",
            "norm.kind=rmsnorm",
            "mixer.0.position.kind=rope",
        ],
    )
    assert read.width == 16
    assert read.mixer == (Attention.Config(heads=2, mask=Window(back=5), position=Rope.Config()),)
    through = override(Decoder.Config(vocabulary=5, width=8, depth=2).dump(), ["mixer.heads=2", "mixer.kind=cross"])
    assert through["mixer"] == [{"kind": "cross", "heads": 2}]  # one mixer is a list of one; its kind is set first
    changed = override({"norm": {"kind": "layernorm", "bias": False}}, ["norm.kind=rmsnorm"])
    assert changed == {"norm": {"kind": "rmsnorm"}}
    kept = override({"norm": {"kind": "layernorm", "bias": False}}, ["norm.kind=layernorm"])
    assert kept == {"norm": {"kind": "layernorm", "bias": False}}


def test_overrides_leave_what_was_given_as_it_was() -> None:
    """A recipe may be changed twice, and the second change must not see the first."""
    given = {"width": 8, "mixer": [{"kind": "attention", "mask": {"kind": "window", "back": 3}}]}
    override(given, ["width=9", "mixer.0.mask.back=5", "mixer.0.heads=2", "norm.kind=rmsnorm"])
    assert given == {"width": 8, "mixer": [{"kind": "attention", "mask": {"kind": "window", "back": 3}}]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("width", "is not an override; write it as place.in.the.tree=value"),
        (".=3", "is not an override"),
        ("mixer.7.heads=2", "'7' does not name one of 1 items; use 0 to 0"),
        ("mixer.1.heads=2", "'1' does not name one of 1 items; use 0 to 0"),
        ("width.x=2", "width is 8, which has nothing inside to set"),
    ],
)
def test_bad_overrides_are_explained(change: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        override({**SMALL, "mixer": [{"kind": "attention"}]}, [change])


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.toml", "width = ", "a.toml is not valid toml"),
        ("a.json", "{", "a.json is not valid json"),
        ("a.json", "[1]", "holds a list; a configuration is a table of named values"),
    ],
)
def test_bad_files_are_explained(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=words):
        read_data(tmp_path / name)
    with pytest.raises(ConfigError, match="is not a file"):
        read_data(tmp_path / "absent.toml")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    """64 MiB: all known configurations together are smaller."""
    with (tmp_path / "a.json").open("wb") as file:
        file.truncate((1 << 26) + 1)  # holes, which take no room
    with pytest.raises(ConfigError, match=r"has 67,108,865 bytes; a configuration has at most 67,108,864"):
        read_data(tmp_path / "a.json")
    with (tmp_path / "a.json").open("wb") as file:
        file.write(b'{"width": 8}')
        file.truncate(1 << 26)
        file.seek(12)
        file.write(b" " * ((1 << 26) - 12))
    assert read_data(tmp_path / "a.json") == {"width": 8}


def scalars(annotation: Any, metadata: tuple[Any, ...] = ()) -> list[tuple[Any, tuple[Any, ...]]]:
    if get_origin(annotation) is Annotated:
        base, *more = get_args(annotation)
        return scalars(base, (*metadata, *more))
    if annotation in (int, float, bool, str):
        return [(annotation, metadata)]
    if any(isinstance(item, OneOf) for item in metadata):
        return []
    return [found for arg in get_args(annotation) if arg is not annotation for found in scalars(arg)]


@pytest.mark.parametrize("config", EVERY, ids=lambda config: config.__qualname__)
def test_no_scalar_is_lax_and_what_may_be_none_is_none_by_default(config: type[Config]) -> None:
    """Lax scalars would read "8" as 8; a None that is not the default would get lost in TOML, which has no null."""
    for name, field in config.model_fields.items():
        for scalar, metadata in scalars(field.annotation, tuple(field.metadata)):
            literal = any(isinstance(item, Strict) for item in metadata)
            assert literal, f"{config.__qualname__}.{name} has a lax {scalar.__name__}; use Size, Count, Flag, Text ..."
        if type(None) in get_args(field.annotation):
            assert field.default is None, f"{config.__qualname__}.{name} may be None but is not by default"


def test_kinds_are_unique_in_each_table() -> None:
    for table in ((*MIXERS, *FEEDFORWARDS), MASKS, POSITIONS, NORMS, WIRINGS, SCORES, MODELS):
        kinds = [config.model_fields["kind"].default for config in table]
        assert len(set(kinds)) == len(kinds)
