"""Whatever stands in a config.json, every family loads or says in words what is wrong, soon and in little memory."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heed.core.errors import WeightsError
from heed.weights import FAMILIES, Checkpoint, Folder, open_
from tests.weights.support import GOLDEN, TOLERANCES

TYPES = {name for family in FAMILIES for name in family.types}
BY_TYPE = {
    json.loads((GOLDEN / case / "config.json").read_text())["model_type"]: GOLDEN / case for case in sorted(TOLERANCES)
}
FOLDERS = {name: folder for name, folder in BY_TYPE.items() if name in TYPES}

NUMBERS = st.sampled_from([-1, 0, 1, 2, 3, 7, 10**3, 10**9, 10**12, 10**19]) | st.floats(allow_nan=True)
JUNK = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


def places(config: dict[str, Any], path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The place of every value, also inside of tables."""
    found = []
    for name, value in config.items():
        found += [(*path, name), *(places(value, (*path, name)) if isinstance(value, dict) else [])]
    return found


@pytest.mark.parametrize("name", sorted(FOLDERS))
@settings(max_examples=40, deadline=60_000, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_value_gives_a_model_or_a_message(name: str, data: st.DataObject) -> None:
    folder = Folder.open(FOLDERS[name])
    config = deepcopy(folder.config)
    for place in data.draw(st.lists(st.sampled_from(places(config)), min_size=1, max_size=2, unique=True)):
        node: Any = config
        for step in place[:-1]:
            node = node[step] if isinstance(node, dict) and step in node else {}
        if isinstance(node, dict):
            node[place[-1]] = data.draw(JUNK)
    config["model_type"] = name
    message = str(folder.path)
    try:
        open_(Checkpoint(folder.path, config, folder.weights))
    except WeightsError as error:
        message = str(error)
    assert str(Path(folder.path)) in message
