"""Funnel Transformer: pooled pairs as loops, lengths, rows of their own length, and its attention written out."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import ConfigError, InputError
from heed.mixers import FunnelAttention
from heed.models import Funnel

DOUBLE = torch.float64


def built(**options: Any) -> Funnel:
    torch.manual_seed(0)
    separate = options.get("separate", True)
    config = Funnel.Config(vocabulary=17, width=8, mixer=FunnelAttention.Config(heads=2, separate=separate), **options)
    return config.build().double().eval()


def pairs(tokens: int, *, separate: bool, truncate: bool) -> list[list[int]]:
    """Which tokens become one, in plain words."""
    if tokens <= 1 + separate:
        return [[i] for i in range(tokens)]
    if not separate:
        return [[i for i in (a, a + 1) if i < tokens] for a in range(0, tokens, 2)]
    rest = list(range(1, tokens - 1 if truncate else tokens))
    return [[0], *(rest[a : a + 2] for a in range(0, len(rest), 2))]


@pytest.mark.parametrize("pool", ["mean", "max", "min"])
@pytest.mark.parametrize("separate", [True, False])
@pytest.mark.parametrize("truncate", [True, False])
def test_pairs_are_pooled_and_spread_again(pool: str, *, separate: bool, truncate: bool) -> None:
    model = built(pool=pool, separate=separate, truncate=truncate)
    combine = {"mean": lambda x: x.mean(0), "max": lambda x: x.amax(0), "min": lambda x: x.amin(0)}[pool]
    for tokens in range(1, 12):
        x, where = torch.randn(1, tokens, 8, dtype=DOUBLE), Where.run(1, tokens)
        level = model.levels(x, where)[0]
        short = level.pooled(model.config)
        groups = pairs(tokens, separate=separate, truncate=truncate)
        assert short.x.shape[1] == len(groups)
        for i, group in enumerate(groups):
            assert torch.allclose(short.x[0, i], combine(x[0, group]), rtol=0, atol=1e-13)
            assert short.where.position[0, i] == group[0]
        long = short.spread(level, model.config)[0]
        reached = [
            i for i, group in enumerate(groups) for _ in range(2 if len(groups) < tokens and i >= separate else 1)
        ]
        for j, vector in enumerate(
            long
        ):  # each of them twice, then nothing: a last one without a partner is repeated, too
            assert torch.equal(vector, short.x[0, reached[j]] if j < len(reached) else torch.zeros_like(vector))


def test_levels_get_shorter_and_the_end_is_as_long_as_the_beginning() -> None:
    model = built(sizes=(1, 2, 1), repeats=(2, 1, 1), upper=2)
    levels = model.levels(torch.randn(1, 16, 8, dtype=DOUBLE), Where.run(1, 16))
    assert [level.x.shape[1] for level in levels] == [16, 16, 16, 8, 8, 4, 16, 16, 16]
    assert model.stack.order == (0, 0, 1, 2, 3, 4, 5)
    assert len(model.stack.blocks) == 6


def test_without_upper_layers_it_gives_the_short_text() -> None:
    model = built(upper=0)
    seen = model.encode(torch.randint(17, (2, 9)), Where.ragged([9, 4]))
    assert seen.parts[0].shape == (2, 5, 8)
    assert seen.order.tolist() == [[0, 1, 2, 3, 4], [0, 1, -1, -1, -1]]


@pytest.mark.parametrize("options", [{}, {"truncate": False}, {"separate": False}, {"sizes": (1, 1, 1)}])
def test_a_row_is_pooled_by_its_own_length(options: dict[str, Any]) -> None:
    """Even rows too short to be pooled, beside long ones."""
    model = built(**options)
    tokens, lengths = torch.randint(17, (5, 11)), [11, 6, 3, 2, 1]
    together = model(tokens, Where.ragged(lengths))[0]
    for row, length in enumerate(lengths):
        alone = model(tokens[row : row + 1, :length], Where.run(1, length))[0]
        assert torch.allclose(together[row, :length], alone[0], rtol=0, atol=1e-12)


def test_attention_is_its_equation() -> None:
    """Contents, distances and segments; the first token stands apart; queries may be pooled."""
    torch.manual_seed(1)
    mixer = FunnelAttention.Config(heads=2, head_size=3).build(8).double().eval()
    for parameter in mixer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    x, segment = torch.randn(1, 6, 8, dtype=DOUBLE), torch.tensor([[2, 0, 0, 1, 1, 2]])
    y = mixer(x, Where.run(1, 6).give(segment=segment))[0][0]
    query = mixer.query(x[0]).view(6, 2, 3) / math.sqrt(3)
    key, value = (linear(x[0]).view(6, 2, 3) for linear in (mixer.key, mixer.value))
    scaled = {name: getattr(mixer, f"{name}_bias") / math.sqrt(3) for name in ("content", "position", "segment")}

    def wave(distance: int) -> Tensor:
        angle = distance * torch.tensor([10000 ** (-c / 4) for c in range(4)], dtype=DOUBLE)
        return torch.cat((angle.sin(), angle.cos()))

    for i in range(6):
        mixed = []
        for h in range(2):
            scores = []
            for j in range(6):
                score = (query[i, h] + scaled["content"][h]) @ key[j, h]
                if i and j:
                    place = wave(i - j) @ mixer.position_kernel[:, h]
                    score = score + (query[i, h] + scaled["position"][h]) @ place
                    one, other = int(segment[0, i]), int(segment[0, j])
                    same = one == other or 2 in (one, other)
                    score = score + (query[i, h] + scaled["segment"][h]) @ mixer.segment_table[int(same), h]
                scores.append(score)
            mixed.append(torch.stack(scores).softmax(0) @ value[:, h])
        assert torch.allclose(y[i], mixer.out(torch.cat(mixed)), rtol=0, atol=1e-12)


def test_tokens_may_bring_their_segment() -> None:
    model = built()
    tokens = torch.randint(17, (1, 7))
    plain = model(tokens, Where.run(1, 7))[0]
    same = model(torch.stack((tokens, torch.zeros_like(tokens)), -1), Where.run(1, 7))[0]
    mixed = model(torch.stack((tokens, torch.arange(7)[None] % 2), -1), Where.run(1, 7))[0]
    assert torch.equal(plain, same)
    assert not torch.allclose(plain, mixed)
    with pytest.raises(InputError, match="segments from 0 to 6 were given, the model compares 0 to 2"):
        model(torch.stack((tokens, torch.arange(7)[None]), -1), Where.run(1, 7))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="must name the same blocks"):
        Funnel.Config(width=8, sizes=(1, 1), repeats=(1,))
    with pytest.raises(ConfigError, match="skip is 2, but the first block has 1 layers"):
        Funnel.Config(width=8, skip=2)
    with pytest.raises(ConfigError, match="separate = False"):
        Funnel.Config(width=8, separate=False)
    with pytest.raises(ConfigError):
        Funnel.Config(width=8, sizes=(0, 1))
    with pytest.raises(ConfigError, match="width must be even, not 9"):
        FunnelAttention.Config(heads=3).build(9)
