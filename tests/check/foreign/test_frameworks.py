"""Layers of other frameworks are recognised, and no torch code is taken for one."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from heed.check import CannotCheck, check
from heed.check.foreign.frameworks import framework

SOURCE = """
class Layer:
    def __init__(self):
        self.built = False
"""


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stand-in for a framework: a package of its name with a class in it."""

    def made(name: str) -> Any:
        module = ModuleType(name)
        exec(SOURCE, module.__dict__)
        monkeypatch.setitem(sys.modules, name, module)
        return module

    return made


@pytest.mark.parametrize(
    ("package", "name"), [("keras.src.layers", "Keras"), ("flax.linen", "Flax"), ("equinox", "Equinox")]
)
def test_a_layer_of_another_framework_is_refused_by_name(theirs: Any, package: str, name: str) -> None:
    class Attention(theirs(package).Layer):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return x

    for target in (Attention, Attention()):
        with pytest.raises(CannotCheck, match=f"Attention is written with {name}, which is not covered"):
            check(target)


def test_keras_on_torch_is_refused_too(theirs: Any) -> None:
    class Attention(theirs("keras.src.layers").Layer, nn.Module):  # type: ignore[misc]
        pass

    assert framework(Attention) == "Keras"


def test_a_function_that_knows_another_framework_and_no_torch(theirs: Any, tmp_path: Path) -> None:
    theirs("jax")
    path = tmp_path / "mine.py"
    path.write_text("import jax\n\n\ndef attend(query, key, value):\n    return query @ key\n")
    with pytest.raises(CannotCheck, match="attend is written with JAX"):
        check(f"{path}:attend")
    path.write_text("import jax\nimport torch\n\n\ndef attend(q, k, v):\n    return (q @ k.mT).softmax(-1) @ v\n")
    check(f"{path}:attend", only=["repeat"])


def test_torch_is_torch() -> None:
    for target in (nn.MultiheadAttention, nn.Linear(2, 2), nn.functional.scaled_dot_product_attention, torch.softmax):
        assert framework(target) is None
