"""A stack is its blocks one after the other between two ends; a backbone is that, after scaled embeddings."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from heed.core.contract import Where
from heed.mixers import Attention
from heed.models import Decoder, Encoder
from heed.models.convolved import Convolved
from heed.models.stack import Stack
from heed.parts.layers.norms import LayerNorm, RMSNorm
from heed.parts.masks import Window
from heed.parts.residual.wiring import PostNorm, PreNorm, ResiDual

WIDTH = 12


@pytest.mark.parametrize("wiring", [PreNorm(), PreNorm(final=False), PostNorm(final=True), ResiDual()], ids=repr)
@pytest.mark.parametrize("norm", [LayerNorm(), RMSNorm()], ids=repr)
def test_a_stack_goes_from_one_end_to_the_other(
    wiring: PreNorm | PostNorm | ResiDual, norm: LayerNorm | RMSNorm
) -> None:
    stack = Stack(Stack.Config(width=WIDTH, depth=3, wiring=wiring, norm=norm)).double()
    for parameter in stack.ends.parameters():
        nn.init.normal_(parameter)
    x, where = torch.randn(2, 5, WIDTH, dtype=torch.float64), Where.run(2, 5)
    stream = stack.ends.enter(x)
    for block in stack.layers:
        stream, _ = block(stream, where)
    y, _ = stack(x, where)
    assert torch.equal(y, stack.ends.leave(stream))
    assert (stack.ends.final is None) == (wiring == PreNorm(final=False))
    assert y.shape == x.shape


def test_mixers_and_their_order_are_tiled_over_the_depth() -> None:
    near, far = Attention.Config(heads=2, mask=Window(back=1)), Attention.Config(heads=3)
    stack = Stack(Stack.Config(width=WIDTH, depth=5, mixer=(near, far)))
    assert [block.mixer.heads for block in stack.layers] == [2, 3, 2, 3, 2]
    shared = Stack(Stack.Config(width=WIDTH, depth=4, mixer=(near, far), order=(0, 1, 1, 0)))
    assert len(shared.blocks) == 2
    assert [block.mixer.heads for block in shared.layers] == [2, 3, 3, 2]
    assert shared.layers[1] is shared.layers[2]


def test_a_convolution_stands_beside_the_first_block_alone() -> None:
    config = Encoder.Config(vocabulary=7, width=WIDTH, depth=3, convolution=Convolved.Config(kernel=3))
    assert [isinstance(block, Convolved) for block in config.build().stack.layers] == [True, False, False]


def test_first_weights_keep_the_variance_and_shift_nothing() -> None:
    """Glorot & Bengio 2010: uniform up to √(6 / (in + out)), for every linear layer of every block."""
    torch.manual_seed(0)
    stack = Stack(Stack.Config(width=48, depth=2))
    layers = [layer for layer in stack.modules() if isinstance(layer, nn.Linear)]
    assert len(layers) == 12
    for layer in layers:
        most = math.sqrt(6 / (layer.in_features + layer.out_features))
        assert float(layer.weight.detach().abs().max()) <= most
        assert layer.weight.std().item() == pytest.approx(most / math.sqrt(3), rel=0.05)
        assert not layer.bias.any()


@pytest.mark.parametrize("scaled", [True, False])
def test_embeddings_are_scaled_by_the_root_of_the_width(scaled: bool) -> None:
    """So that they are as large as the sinusoids that are added (Vaswani et al. 2017, sec. 3.4)."""
    model = Decoder.Config(vocabulary=7, width=WIDTH, depth=1, scaled=scaled).build()
    tokens, where = torch.tensor([[1, 6, 3]]), Where.run(1, 3)
    wanted = model.embeddings.table(tokens) * (WIDTH**0.5 if scaled else 1.0)
    assert torch.equal(model.embeddings(tokens, where), wanted)
    assert model.head.weight is model.embeddings.table.weight
