"""heed list and heed config: what there is, and what each setting does."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from heed import catalogue
from heed.catalogue import TABLES, entries, named, names
from heed.runs import Recipe, find
from heed.runs.recipe import abouts
from tests.cli.support import Shell

ROOT = Path(__file__).parents[2]


def test_a_table_or_what_is_searched_for(heed: Shell) -> None:
    both = [json.loads(heed("list", *words, "--json").out) for words in (["masks"], ["--table", "masks"])]
    assert both[0] == both[1]
    assert {entry["table"] for entry in both[0]} == {"masks"}
    found = json.loads(heed("list", "--search", "ROTARY", "--json").out)
    assert "rope" in {entry["name"] for entry in found}
    assert len(found) < 10
    shown = heed("list", "norms").out
    assert "rmsnorm" in shown
    assert "attention" not in shown


def test_one_entry_in_full(heed: Shell) -> None:
    told = heed("list", "attention").out
    assert "y_i = W_o Σ_j softmax_j(q_i·k_j / √d) v_j" in told
    assert "Vaswani et al. 2017, Attention Is All You Need" in told
    assert "remembers 2·kv_heads·head_size numbers per token; compiled" in told
    assert "docs/mechanisms/attention.md" in told
    assert "heed verify attention" in told
    assert "heads of keys and values; unset: as many as heads" in " ".join(told.split())
    (whole,) = json.loads(heed("list", "attention", "--json").out)
    assert whole["code"] == "heed.mixers.attention:Attention"
    assert {setting["key"] for setting in whole["settings"]} >= {"heads", "kv_heads", "mask", "position"}
    assert len(whole["samples"]) > 20


def test_a_name_may_be_in_several_tables(heed: Shell) -> None:
    assert [entry["table"] for entry in json.loads(heed("list", "gpt2", "--json").out)] == [
        "architectures",
        "checkpoints",
    ]


def test_one_entry_imports_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The laws of growth of all mixers are what makes the whole list slow."""
    asked: list[object] = []

    def note(config: object) -> str:
        asked.append(config)
        return ""

    monkeypatch.setattr(catalogue, "_note", note)
    assert [entry.table for entry in named("mamba")] == ["mixers", "architectures", "checkpoints"]
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("list", "ropee"), "there is nothing called 'ropee'; did you mean rope?"),
        (("list", "qqqqq"), "heed list shows all there is"),
        (("list", "--table", "mixer"), "there is no table called 'mixer'; did you mean mixers?"),
        (("list", "--search", "qqqqq"), "no entry says 'qqqqq'"),
        (("list", "rope", "--search", "x"), "'rope' is told in full; leave it out"),
        (("config", "charcters"), "did you mean characters?"),
        (("config", "characters", "traning"), "traning is unknown; did you mean training?"),
        (("config", "characters", "training", "--toml"), "--toml prints the whole recipe; leave 'training' out"),
        (("train", "characters", "--set", "training.stps=?"), "training.stps is unknown; did you mean steps?"),
    ],
)
def test_names_that_are_not_there(heed: Shell, words: tuple[str, ...], message: str) -> None:
    assert message in heed(*words, code=2).err


def test_every_entry_can_be_told() -> None:
    for entry in entries():
        assert entry.text
        assert entry.summary
        assert not entry.page or (ROOT / entry.page).is_file(), entry


def test_the_tables_have_the_names_of_their_entries() -> None:
    for table in TABLES:
        assert names(table) == [entry.name for entry in entries(table)]


def test_every_setting_with_type_default_and_a_line(heed: Shell) -> None:
    told = heed("config", "characters", "training").out
    steps = next(line for line in told.splitlines() if line.split()[:1] == ["steps"])
    assert " ".join(steps.split()) == "steps 1800 1000 integer > 0 how often the weights are updated"
    assert "training.optimizer" in told
    assert "training.schedule = linear" in told
    assert "model.norm" not in told
    found = {setting["key"]: setting for setting in json.loads(heed("config", "characters", "--json").out)}
    assert found["training.steps"] == {
        "key": "training.steps",
        "type": "integer > 0",
        "value": 1800,
        "default": 1000,
        "required": False,
        "about": "how often the weights are updated",
        "kinds": [],
    }
    assert all(setting["about"] for setting in found.values())
    assert len(found) > 80


def test_kinds_to_choose_from_are_listed(heed: Shell) -> None:
    told = heed("config", "characters", "training.average").out
    assert "Choose one by --set training.average.kind=NAME" in told
    assert "exponential moving average" in told
    mamba = heed("config", "characters", "model.mixer", "--set", "model.mixer.kind=mamba").out
    assert "model.mixer = mamba" in mamba
    assert "numbers that each channel remembers" in mamba


def test_a_setting_is_asked_about_where_it_is_set(heed: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = heed("train", "characters", "--set", "training=?").out
    assert asked == heed("config", "characters", "training").out
    assert "heads of keys and values" in heed("train", "characters", "--set", "model.mixer=?").out
    assert "data.kind" not in heed("train", "characters", "--set", "?").err
    assert not list(tmp_path.iterdir())  # nothing was trained


def test_a_recipe_of_ones_own(heed: Shell, tmp_path: Path) -> None:
    text = heed("config", "characters", "--toml", "--set", "training.steps=7").out
    assert tomllib.loads(text)["training"]["steps"] == 7
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
    assert Recipe.read(tmp_path / "mine.toml") == Recipe.read(find("characters"), ["training.steps=7"])
    assert "0.006" in heed("config", tmp_path / "mine.toml", "training.optimizer").out


def test_the_recipes_are_listed(heed: Shell) -> None:
    told = heed("config").out
    assert "characters" in told
    assert "A text -> a character language model" in told
    assert len(json.loads(heed("config", "--json").out)) >= 7


def test_recipes_are_listed_with_what_they_need_and_reached(heed: Shell) -> None:
    shown = " ".join(heed("train", "--list").out.split())
    told = {one["name"]: one for one in json.loads(heed("train", "--list", "--json").out)}
    for name, about in abouts().items():
        assert about.needs, name
        assert about.reached, name
        assert told[name] == {"name": name, **about._asdict()}
        assert f"{name} " in shown
    assert {"sentiment", "question-type", "news", "tags", "entities", "similarity", "squad", "summary"} <= set(told)
