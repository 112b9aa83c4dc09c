"""BigBird against its equation written as loops; its random blocks; its cost."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from heed.core.contract import Where
from heed.core.errors import ConfigError
from heed.core.laws import LAWS, Case
from heed.mixers import BigBird
from heed.parts.look import look
from heed.weights.replays.hidden import HiddenBigBird, with_weights_of

WIDTH, HEADS, SIZE = 12, 2, 6


def drawn(config: BigBird.Config, count: int) -> Tensor:
    return config.build(WIDTH).drawn(count)


def blocks_seen(mixer: BigBird, count: int, block: int, head: int) -> list[int]:
    """The blocks that a block sees, each as often as it counts, from the words of the paper."""
    config = mixer.config
    ends = {*range(min(config.globals, count)), *range(max(0, count - config.globals), count)}
    if count <= config.full or block in ends:
        return list(range(count))
    half = config.window // 2
    near = set(range(max(0, block - half), min(count, block + half + 1)))
    more = [0] * config.random if config.repeats_first else mixer.drawn(count)[head, block].tolist()
    return [*(ends | near), *(other for other in more if other >= 0)]


def by_loops(mixer: BigBird, x: Tensor) -> Tensor:
    """One row, token by token and head by head."""
    q, k, v = (linear(x) for linear in (mixer.query, mixer.key, mixer.value))
    size, tokens = mixer.config.block, len(x)
    made = []
    for i in range(tokens):
        heads = []
        for h in range(HEADS):
            one = slice(SIZE * h, SIZE * h + SIZE)
            total, mean = 0.0, torch.zeros(SIZE, dtype=x.dtype)
            for block in blocks_seen(mixer, -(-tokens // size), i // size, h):
                for j in range(block * size, min(tokens, block * size + size)):
                    weight = math.exp(float(q[i, one] @ k[j, one]) / math.sqrt(SIZE))
                    total, mean = total + weight, mean + weight * v[j, one]
            heads.append(mean / total)
        made.append(mixer.out(torch.cat(heads)))
    return torch.stack(made)


CONFIGS = (
    BigBird.Config(heads=HEADS, block=2, random=1),
    BigBird.Config(heads=HEADS, block=3, random=2, window=1, seed=5),
    BigBird.Config(heads=HEADS, block=1, random=3, window=5, globals=2),
    BigBird.Config(heads=HEADS, block=2, random=2, globals=0),
    BigBird.Config(heads=HEADS, block=2, random=2, repeats_first=True),
    BigBird.Config(heads=HEADS, block=2, random=1, full=6),
)


@pytest.mark.parametrize("config", CONFIGS, ids=repr)
@torch.no_grad()
def test_it_is_its_equation(config: BigBird.Config) -> None:
    """Ragged rows of every kind: shorter than a block, of few blocks, of many, with a last block that is not full."""
    mixer, lengths = config.build(WIDTH).double(), [23, 1, 12, 7]
    x = torch.randn(4, 23, WIDTH, dtype=torch.float64)
    y, _ = mixer(x, Where.ragged(lengths))
    for row, length in enumerate(lengths):
        assert torch.allclose(y[row, :length], by_loops(mixer, x[row, :length]), rtol=0, atol=1e-13)


@pytest.mark.parametrize("config", CONFIGS, ids=repr)
@pytest.mark.parametrize("law", LAWS[1:3], ids=lambda law: law.__name__)
def test_laws_hold_for_rows_of_many_blocks(config: BigBird.Config, law: Any) -> None:
    finding = law(config.build(WIDTH), Case.make(WIDTH, rows=3, tokens=29))
    assert finding.holds, finding


@pytest.mark.parametrize("count", [1, 2, 5, 6, 7, 40])
@pytest.mark.parametrize("ends", [0, 1, 2])
def test_random_blocks_are_new_ones(count: int, ends: int) -> None:
    """As many as asked for if there are so many, all different, none of them seen already."""
    config = BigBird.Config(heads=3, head_size=4, random=3, globals=ends)
    found = drawn(config, count)
    assert found.shape == (3, count, min(3, count))
    for head in range(3):
        for block in range(count):
            fixed = {*range(ends), *range(count - ends, count), block - 1, block, block + 1} & set(range(count))
            chosen = [other for other in found[head, block].tolist() if other >= 0]
            assert len(set(chosen)) == len(chosen) == min(3, count - len(fixed))
            assert not fixed & set(chosen)
            assert set(chosen) <= set(range(count))


def test_random_blocks_come_from_the_seed_alone() -> None:
    config = BigBird.Config(heads=4, random=2)
    first = drawn(config, 31).clone()
    BigBird.__init__.__globals__["_drawn"].cache_clear()
    torch.manual_seed(99)
    assert torch.equal(drawn(config, 31), first)
    assert not torch.equal(drawn(config.model_copy(update={"seed": 1}), 31), first)
    assert not torch.equal(first[0], first[1])  # heads draw for themselves


def test_random_blocks_lie_everywhere() -> None:
    """Over many heads, each block that may be drawn is drawn about equally often."""
    found = drawn(BigBird.Config(heads=2000, head_size=1, random=2), 12)[:, 5]
    times = torch.bincount(found.flatten(), minlength=12)
    assert times[[0, 4, 5, 6, 11]].sum() == 0
    free = times[[1, 2, 3, 7, 8, 9, 10]] / 2000  # 2 out of 7 each
    assert float((free - 2 / 7).abs().max()) < 0.06


@torch.no_grad()
def test_weights_are_those_of_the_output() -> None:
    for config in CONFIGS:
        mixer, x = config.build(WIDTH).double(), torch.randn(2, 17, WIDTH, dtype=torch.float64)
        order = torch.stack([torch.randperm(17), torch.arange(17)])
        order[1, 11:] = -1
        where = Where(order, order.clamp(min=0))
        with look(mixer) as seen:
            y, _ = mixer(x, where)
        (weights,) = seen["weights"]
        assert weights.shape == (2, HEADS, 17, 17)
        sums = weights.sum(-1)[where.real[:, None].expand(-1, HEADS, -1)]
        assert torch.allclose(sums, torch.ones_like(sums))
        mixed = mixer.merge(torch.einsum("bhtn,bnhe->bthe", weights, mixer.values(x)))
        assert torch.allclose(mixed[where.real], y[where.real], rtol=0, atol=1e-13)


@torch.no_grad()
def test_blocks_follow_the_order_of_tokens() -> None:
    mixer, x = CONFIGS[0].build(WIDTH).double(), torch.randn(1, 15, WIDTH, dtype=torch.float64)
    shuffled = torch.randperm(15)
    y, _ = mixer(x, Where.run(1, 15))
    mixed, _ = mixer(x[:, shuffled], Where(shuffled[None], shuffled[None]))
    assert torch.allclose(mixed, y[:, shuffled], rtol=0, atol=1e-13)


@torch.no_grad()
def test_hidden_tokens_keep_their_places() -> None:
    """They change nothing by what they hold, and get nothing; the blocks of the others stay where they are."""
    mixer, x = CONFIGS[0].build(WIDTH).double(), torch.randn(1, 15, WIDTH, dtype=torch.float64)
    shown = torch.ones(1, 15, dtype=torch.bool)
    shown[0, [2, 9, 13, 14]] = False
    other = x.masked_fill(~shown[..., None], 7.0)
    hiding = with_weights_of(mixer, HiddenBigBird, shown=shown)
    y, again = hiding(x, Where.run(1, 15))[0], hiding(other, Where.run(1, 15))[0]
    assert torch.equal(y, again)
    assert torch.equal(y[~shown], mixer.out.bias.expand(4, -1))
    assert not torch.allclose(y[shown], mixer(x, Where.run(1, 15))[0][shown])


class Largest(TorchDispatchMode):
    """The most numbers that any one operation makes."""

    most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        tensors = made if isinstance(made, tuple | list) else (made,)
        self.most = max([self.most, *(t.numel() for t in tensors if isinstance(t, Tensor))])
        return made


def test_nothing_grows_with_the_square_of_the_length() -> None:
    mixer, most = BigBird.Config(heads=HEADS, block=8, random=2).build(WIDTH), []
    for tokens in (512, 2048):
        x = torch.randn(1, tokens, WIDTH, requires_grad=True)
        with Largest() as largest:
            mixer(x, Where.run(1, tokens))[0].sum().backward()
        most.append(largest.most)
    assert most[1] <= 4.2 * most[0]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="a window of 4 blocks has no middle; use 3 or 5"):
        BigBird.Config(window=4)
    with pytest.raises(ConfigError, match="let globals be 1 or more"):
        BigBird.Config(repeats_first=True, globals=0)
    for field, value in (("block", 0), ("window", 0), ("window", -3), ("globals", -1), ("random", -1)):
        with pytest.raises(ConfigError, match=field):
            BigBird.Config.load({field: value})


@torch.no_grad()
def test_sizes_beyond_the_row_cost_nothing() -> None:
    """Blocks, windows, ends and random blocks of astronomic size are as large as the row."""
    far = 10**15 + 1
    for field, block in (("block", far), ("window", 1), ("globals", 1), ("random", 1)):
        mixer = BigBird.Config.load({"heads": HEADS, "block": block, field: far}).build(WIDTH).double()
        x = torch.randn(2, 9, WIDTH, dtype=torch.float64)
        y, _ = mixer(x, Where.ragged([9, 4]))
        whole = BigBird.Config(heads=HEADS, full=9).build(WIDTH).double()
        whole.load_state_dict(mixer.state_dict())
        assert torch.allclose(y[1, :4], whole(x, Where.ragged([9, 4]))[0][1, :4], rtol=0, atol=1e-13)
