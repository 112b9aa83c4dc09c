"""Heads: which query reads which key, what is normed and cut off, and that nothing is dropped outside of training."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import ConfigError
from heed.mixers import Attention
from heed.parts.attention.multihead import per_head
from heed.parts.layers.norms import RMSNorm
from heed.parts.masks import Whole

WIDTH, TOKENS = 12, 5


def built(**more: object) -> Attention:
    return Attention.Config(heads=6, mask=Whole(), **more).build(WIDTH).double()  # type: ignore[arg-type]


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


@pytest.mark.parametrize("kv_heads", [1, 2, 3, 6])
def test_query_heads_read_key_heads_in_groups(kv_heads: int) -> None:
    """Head h reads key head h // (heads / kv_heads), written as loops (Ainslie et al. 2023)."""
    mixer, x = built(kv_heads=kv_heads), drawn(2, TOKENS, WIDTH)
    size, groups = mixer.head_size, 6 // kv_heads
    q, k, v = (linear(x) for linear in (mixer.query, mixer.key, mixer.value))
    made = drawn(2, TOKENS, 6, size)
    for h in range(6):
        mine, theirs = slice(h * size, (h + 1) * size), slice(h // groups * size, (h // groups + 1) * size)
        score = q[..., mine] @ k[..., theirs].mT / size**0.5
        made[:, :, h] = score.softmax(-1) @ v[..., theirs]
    y, _ = mixer(x, Where.run(2, TOKENS))
    assert torch.allclose(y, mixer.out(made.flatten(2)), rtol=0, atol=1e-13)
    each = mixer.each_head(mixer.keys(x))
    assert torch.equal(each[:, :, 5], mixer.keys(x)[:, :, -1])
    assert torch.equal(each[:, :, groups - 1], mixer.keys(x)[:, :, 0])


def test_queries_and_keys_have_a_norm_each_and_values_none() -> None:
    mixer, x = built(head_norm=RMSNorm(eps=1e-9)), drawn(1, TOKENS, WIDTH)
    assert mixer.query_norm is not None
    assert mixer.key_norm is not None
    torch.nn.init.constant_(mixer.query_norm.get_parameter("weight"), 2.0)
    torch.nn.init.constant_(mixer.key_norm.get_parameter("weight"), 3.0)
    for made, gain in ((mixer.queries(x), 2.0), (mixer.keys(x), 3.0)):
        assert torch.allclose(made.square().mean(-1).sqrt(), torch.full((1, TOKENS, 6), gain).double(), rtol=1e-6)
    assert torch.equal(mixer.values(x).flatten(2), mixer.value(x))


def test_what_is_clipped_is_cut_off_at_both_ends() -> None:
    mixer, x = built(clip=0.25), 9 * drawn(1, TOKENS, WIDTH)
    for made in (mixer.queries(x), mixer.keys(x), mixer.values(x)):
        assert (made.min().item(), made.max().item()) == (-0.25, 0.25)


def test_weights_are_dropped_in_training_only() -> None:
    mixer, x = built(dropout=0.5), drawn(2, TOKENS, WIDTH)
    where = Where.run(2, TOKENS)
    plain = built()
    plain.load_state_dict(mixer.state_dict())
    assert torch.equal(mixer.eval()(x, where)[0], plain(x, where)[0])
    assert not torch.equal(mixer.train()(x, where)[0], plain(x, where)[0])


def test_a_width_that_does_not_divide_is_refused_with_those_that_do() -> None:
    with pytest.raises(ConfigError, match="width 20 does not divide into 6 heads; nearest widths: 18, 24"):
        per_head(20, 6)
    assert per_head(24, 6) == 4
