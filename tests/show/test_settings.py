"""Settings explain themselves: every key of everything heed has says what it does."""

from __future__ import annotations

import re
import tomllib
from typing import Annotated, Literal

import pytest
from annotated_types import MinLen

from heed.catalogue import TABLES
from heed.core.config import Config, Count, Flag, Fraction, OneOf, Seed, Share, Size, Text, configs_in
from heed.core.errors import ConfigError
from heed.pipelines import GenerationConfig
from heed.runs import Recipe, find
from heed.runs.recipe import shipped
from heed.runs.training import SCHEDULES, Cosine, Schedule, Training
from heed.show.settings import (
    USUAL,
    Section,
    commented,
    declared,
    explained,
    paragraphs,
    sections,
    type_words,
)
from heed.show.settings import find as find_setting


def everything() -> list[type[Config]]:
    """Every class that can stand somewhere in a recipe, or in a table of the catalogue."""
    found: dict[type[Config], None] = {}
    held = (config for name, table in TABLES.items() if name != "checkpoints" for config in table)
    to_do: list[type[Config]] = [Recipe, GenerationConfig, *held]
    while to_do:
        config = to_do.pop()
        if config not in found:
            found[config] = None
            for field in config.model_fields.values():
                to_do += [each for table in configs_in(field.annotation, field.metadata) for each in table.values()]
    return list(found)


def test_every_key_of_everything_has_a_line() -> None:
    every = everything()
    assert len(every) > 180
    silent = [
        f"{config.__module__}:{config.__qualname__}.{name}"
        for config in every
        for name in config.model_fields
        if name != "kind" and not explained(config, name)
    ]
    assert not silent, "say at the end of the line what these do: " + ", ".join(silent)


@pytest.mark.parametrize("name", shipped())
def test_a_recipe_with_comments_is_the_same_recipe(name: str) -> None:
    recipe = Recipe.read(find(name))
    text = commented(recipe)
    assert Recipe.load(tomllib.loads(text)) == recipe
    keys = [setting.name for section in sections(recipe) for setting in section.settings()]
    assert len(keys) > 40
    there = re.compile(r"^(?:# )?(\w+) =|^\[+(?:\w+\.)*(\w+)\]", re.MULTILINE)
    assert set(keys) <= {name for found in there.findall(text) for name in found}


def test_a_line_of_toml_says_what_why_and_by_default() -> None:
    text = commented(Training(steps=7))
    assert "# how often the weights are updated\nsteps = 7  # integer > 0; default 1000\n" in text
    assert "# stop after so many evaluations without a better loss\n# patience =  # not set; integer > 0\n" in text
    assert '# average = { kind = "ema" }  # not set; one of ema or tail\n' in text
    assert (
        '[schedule]  # Falls along half a cosine to a share of the peak (Loshchilov & Hutter 2017).\nkind = "cosine"'
        in text
    )


class Inner(Config):
    """A node of one key."""

    heads: Size = 2


class Node(Inner):
    """A node."""

    kind: Literal["node"] = "node"
    width: Size  # own words
    noisy: Flag = False  # noqa: RUF100  # said after a word for a tool
    several: tuple[Inner, ...] = ()  # nodes; None counts as none
    inner: Inner = Inner()
    plain: Text = ""


def test_the_line_is_the_comment_beside_the_field() -> None:
    told = {setting.name: setting.about for setting in declared(Node)}
    assert told == {
        "heads": USUAL["heads"],  # inherited, without a comment: what the name means everywhere
        "width": "own words",
        "noisy": "said after a word for a tool",
        "several": "nodes; unset counts as none",  # files have no None
        "inner": "A node of one key.",
        "plain": "",
    }


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (Size, "integer > 0"),
        (Count, "integer ≥ 0"),
        (Share, "number ≥ 0 and < 1"),
        (Fraction, "number > 0 and ≤ 1"),
        (Seed, "integer ≥ 0 and < 2^62"),
        (Flag, "true or false"),
        (Text | None, "text"),
        (Literal["a", "b", "c"], "a, b or c"),
        (tuple[Size, ...], "list of integer > 0"),
        (tuple[Size, Size], "list of 2: integer > 0"),
        (Annotated[tuple[Text, ...], MinLen(1)], "non-empty list of text"),
        (Size | tuple[Size, ...], "integer > 0 or list of integer > 0"),
        (Annotated[Schedule, OneOf(lambda: SCHEDULES)], "one of cosine, linear, inverse_sqrt or constant"),
        (Cosine, "table"),
    ],
)
def test_types_in_words(annotation: object, words: str) -> None:
    assert type_words(annotation) == words


def test_a_place_is_found_as_it_is_set() -> None:
    recipe = Recipe.read(find("characters"))
    assert find_setting(recipe, "training.steps").value == 1800
    heads = find_setting(recipe, "model.mixer.heads")  # a list of one stands for its item
    assert (heads.place, heads.value, heads.default, heads.required) == ("model.mixer.heads", 4, 4, False)
    assert find_setting(recipe, "model.mixer.0.heads").value == 4
    assert "mamba" in find_setting(recipe, "model.mixer").choices
    assert [section.place for section in find_setting(recipe, "training").sections()] == [
        "training",
        "training.optimizer",
        "training.schedule",
        "training.parallel",
    ]
    hybrid = Recipe.read(find("characters"), ['model.mixer=[{kind="attention"}, {kind="mamba"}]'])
    assert next(section.place for section in find_setting(hybrid, "model.mixer").sections()) == "model.mixer.0"
    assert "model.mixer.1" in {section.place for section in sections(hybrid)}
    assert Recipe.load(tomllib.loads(commented(hybrid))) == hybrid


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("traning", "traning is unknown; did you mean training?"),
        ("training.step", "training.step is unknown; did you mean steps?"),
        ("training.average.decay", "training.average is not set, which has no decay inside; name a kind first"),
        ("training.steps.more", "training.steps is 1800, which has no more inside; it is a value"),
    ],
)
def test_a_place_that_is_not_there(place: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        find_setting(Recipe.read(find("characters")), place)


def test_paragraphs_are_joined_and_equations_stay() -> None:
    assert (
        paragraphs("One\ntwo.\n\n    y = x\n      + 1\n\nThree\nfour.")
        == "One two.\n\n    y = x\n      + 1\n\nThree four."
    )


def test_a_node_that_is_no_choice_has_no_kind() -> None:
    assert Section("", Training()).kind == ""
    assert Section("", Cosine()).kind == "cosine"
