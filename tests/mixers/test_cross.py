"""Attention, plain and to a source: what is turned, what is seen of a padded source, what a window remembers."""

from __future__ import annotations

import pytest
import torch

from heed.core.contract import Given, Where
from heed.core.state import Log, Seen
from heed.mixers import Attention, Cross
from heed.parts.masks import Window
from heed.parts.positions import Rope

WIDTH = 24


@pytest.mark.parametrize("stepwise", [False, True])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_padding_of_the_source_is_not_seen(stepwise: bool, kv_heads: int) -> None:
    """Blanked, it would still be keys and values: those of the biases. A shorter source alone gives the same."""
    torch.manual_seed(0)
    mixer = Cross.Config(heads=4, kv_heads=kv_heads).build(WIDTH).double()
    for layer in (mixer.key, mixer.value):
        torch.nn.init.normal_(layer.bias)
    x, source = torch.randn(2, 3, WIDTH).double(), torch.randn(2, 6, WIDTH).double()
    source[1, 2:] = 1e6
    memory = Seen.of(Where.ragged([6, 2]), source)
    if stepwise:
        y, _ = mixer(x, Where.run(2, 3), mixer.start(2, Given(encoder_output=memory)))
    else:
        y, _ = mixer(x, Where.run(2, 3).give(encoder_output=memory))
    short = Seen.of(Where.run(1, 2), source[1:, :2])
    alone, _ = mixer(x[1:], Where.run(1, 3).give(encoder_output=short))
    assert torch.allclose(y[1:], alone, rtol=0, atol=1e-13)


def test_values_turn_where_the_code_says_so() -> None:
    """An option of RoFormer: the mean is then of turned values, by their own places."""
    plain, turning = (
        Attention.Config(heads=2, position=Rope.Config(layout="pairs", values=values)).build(WIDTH).double()
        for values in (False, True)
    )
    turning.load_state_dict(plain.state_dict())
    x, where = torch.randn(1, 4, WIDTH).double(), Where.run(1, 4, start=5)
    query, key, value = turning.project(x, where)
    assert torch.equal(value, turning.position.turn(turning.values(x), where))
    for one, other in zip((query, key), plain.project(x, where)[:2], strict=True):
        assert torch.equal(one, other)
    assert torch.equal(plain.project(x, where)[2], plain.values(x))
    assert not torch.allclose(turning(x, where)[0], plain(x, where)[0])


@pytest.mark.parametrize("back", [0, 1, 3])
def test_a_window_remembers_all_that_it_sees(back: int) -> None:
    """Token by token it gives what it gives at once, and a token as far back as the window reaches still counts."""
    torch.manual_seed(0)
    mixer = Attention.Config(heads=2, mask=Window(back=back)).build(WIDTH).double()
    x, made = torch.randn(1, 8, WIDTH).double(), []
    state: Log | None = mixer.start(1)
    for t in range(8):
        y, state = mixer(x[:, t : t + 1], Where.run(1, 1, start=t), state)
        made.append(y)
    whole, _ = mixer(x, Where.run(1, 8))
    assert torch.allclose(torch.cat(made, 1), whole, rtol=0, atol=1e-13)
