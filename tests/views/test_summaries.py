"""`heed summary`: weights add up, shapes are those of a real call, what is alike is told once."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import nn

from heed.core.errors import InputError
from heed.mixers import Attention
from heed.models import Decoder, Encoder
from heed.models.architectures.vit import ViT
from heed.views import summary

SHAPE = Decoder.Config(vocabulary=11, width=24, depth=3, mixer=Attention.Config(heads=4), tied=True)


def test_weights_add_up_and_are_counted_once() -> None:
    found, model = summary(SHAPE), SHAPE.build()
    assert found.weights == sum(weight.numel() for weight in model.parameters())  # what is tied counts once
    assert found.nodes[0].weights == found.weights
    top = [node for node in found.nodes if node.depth == 1]
    assert sum(node.weights for node in top) == found.weights
    assert sum(node.share for node in top) == pytest.approx(1)


def test_shapes_are_those_of_a_call_with_numbers() -> None:
    model, shapes = SHAPE.build().eval(), {}

    def keep(name: str) -> Any:
        def hook(_: nn.Module, __: Any, given: Any) -> None:
            tensor = given[0] if isinstance(given, tuple) else given
            shapes[name] = tuple(tensor.shape)

        return hook

    model.get_submodule("stack.blocks.0.mixer.query").register_forward_hook(keep("query"))
    model.get_submodule("stack.blocks.0").register_forward_hook(keep("0 … 2"))
    model(torch.zeros(2, 5, dtype=torch.long))
    found = {node.name: node for node in summary(SHAPE, tokens=5, rows=2).nodes}
    for name, shape in shapes.items():
        assert found[name].shape == shape
    assert found["0 … 2"].times == 3


def test_blocks_that_differ_are_told_one_by_one() -> None:
    mixed = SHAPE.model_copy(update={"mixer": (Attention.Config(heads=4), Attention.Config(heads=4, kv_heads=1))})
    names = [node.name for node in summary(mixed).nodes if node.kind == "Block"]
    assert names == ["0", "1", "2"]


def test_a_vision_model_and_an_encoder_have_shapes() -> None:
    sees = summary(ViT(width=16, depth=1, heads=2, image=(16, 16), patch=(8, 8), labels=3))
    assert sees.nodes[0].shape is not None
    reads = summary(Encoder.Config(vocabulary=5, width=8, depth=1), tokens=4)
    assert next(node for node in reads.nodes if node.kind == "Stack").shape == (1, 4, 8)


def test_the_depth_of_the_tree_and_its_picture() -> None:
    shallow = summary(SHAPE, depth=1)
    assert max(node.depth for node in shallow.nodes) == 1
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(shallow.text_figure())
    assert f"{shallow.weights:,}" in console.export_text()
    assert f"{shallow.weights:,}" in shallow.html()
    with pytest.raises(InputError, match="1 or more tokens"):
        summary(SHAPE, tokens=0)
