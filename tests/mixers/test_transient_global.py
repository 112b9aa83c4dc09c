"""Transient-global attention is its equation, also where blocks and rows end early; gradients reach both tables."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import ConfigError
from heed.core.laws import LAWS, Case
from heed.mixers import TransientGlobal
from heed.models import Encoder
from heed.parts.look import look
from heed.parts.positions import Buckets

WIDTH = 24
FEW = Buckets.Config(buckets=8, distance=20, both_ways=True)


def built(**options: Any) -> TransientGlobal:
    torch.manual_seed(0)
    mixer = TransientGlobal.Config(position=FEW, **options).build(WIDTH).double()
    with torch.no_grad():
        mixer.position.table.normal_()
        mixer.position.far.table.normal_()
        gain(mixer).uniform_(0.5, 2.0)
    return mixer


def gain(mixer: TransientGlobal) -> Tensor:
    """Of the norm of summaries."""
    (weight,) = mixer.summary_norm.parameters()
    return weight


def stream(rows: int, tokens: int) -> Tensor:
    draw = torch.Generator().manual_seed(1)
    return torch.randn(rows, tokens, WIDTH, generator=draw, dtype=torch.float64)


def numbered(length: int, size: int) -> list[int]:
    """The block of every token: those after the last whole block are counted to it."""
    return [min(i // size, length // size - 1) for i in range(length)]


@torch.no_grad()
def by_loops(mixer: TransientGlobal, x: Tensor, length: int, radius: int, size: int) -> Tensor:
    """The equation for one row, token by token and head by head."""
    block, count = numbered(length, size), length // size
    summary = []
    for b in range(count):
        total = torch.stack([x[j] for j in range(length) if block[j] == b]).sum(0)
        summary.append(total / (total.square().mean() + 1e-6).sqrt() * gain(mixer))
    d, shared, made = int(mixer.head_size), mixer.heads // mixer.kv_heads, []
    for i in range(length):
        heads = []
        for h in range(mixer.heads):
            mine, theirs = slice(h * d, h * d + d), slice(h // shared * d, h // shared * d + d)
            near = [j for j in range(length) if abs(i - j) <= radius]
            told = [(x[j], mixer.position.table, j - i) for j in near]
            told += [(summary[b], mixer.position.far.table, b - block[i]) for b in range(count)]
            weight, value = [], []
            for one, table, gap in told:
                term = table[mixer.position.bucket(torch.tensor(gap)), h]
                score = mixer.query(x[i])[mine] @ mixer.key(one)[theirs] * mixer.scale
                weight.append(math.exp(float(score + term)))
                value.append(mixer.value(one)[theirs])
            heads.append(sum((w / sum(weight) * v for w, v in zip(weight, value, strict=True)), torch.zeros(d)))
        made.append(mixer.out(torch.cat(heads)))
    return torch.stack(made)


@pytest.mark.parametrize(
    ("options", "radius", "size"),
    [
        ({"radius": 2, "block": 4}, 2, 4),
        ({"radius": 0, "block": 1, "kv_heads": 2, "bias": False}, 0, 1),
        ({"radius": 3, "block": 5, "kv_heads": 1, "scale": 1.0}, 3, 5),
        ({"radius": 50, "block": 3}, 50, 3),
    ],
)
def test_the_equation(options: dict[str, Any], radius: int, size: int) -> None:
    mixer, x, lengths = built(**options), stream(4, 14), [14, 11, 8, 3]
    where = Where.ragged(lengths)
    y, _ = mixer(x, where)
    for row, length in enumerate(lengths):
        truth = by_loops(mixer, x[row], length, radius, size)
        torch.testing.assert_close(y[row, :length], truth, rtol=0, atol=1e-12)
    torch.testing.assert_close(mixer(x.masked_fill(~where.real[..., None], torch.nan), where)[0], y)


def dense(mixer: TransientGlobal, x: Tensor, radius: int, size: int) -> Tensor:
    """The same with all pairs written out, to be differentiated. One row."""
    tokens = x.shape[1]
    block = torch.tensor(numbered(tokens, size))
    count = tokens // size
    summary = mixer.summary_norm(torch.stack([x[0, block == b].sum(0) for b in range(count)])[None])
    both = torch.cat((x, summary), 1)

    def heads(layer: torch.nn.Module, of: Tensor) -> Tensor:
        return layer(of).view(1, of.shape[1], mixer.heads, -1).transpose(1, 2)

    place = torch.arange(tokens)
    near = mixer.position.table[mixer.position.bucket(place - place[:, None])]
    far = mixer.position.far.table[mixer.position.bucket(torch.arange(count) - block[:, None])]
    hidden = torch.cat(((place - place[:, None]).abs() > radius, torch.zeros(tokens, count, dtype=torch.bool)), 1)
    score = heads(mixer.query, x) @ heads(mixer.key, both).mT * mixer.scale + torch.cat((near, far), 1).movedim(2, 0)
    weight = score.masked_fill(hidden, float("-inf")).softmax(-1)
    return mixer.out((weight @ heads(mixer.value, both)).transpose(1, 2).flatten(2))


def test_long_rows_and_their_gradients() -> None:
    """At so many tokens the band goes block by block."""
    mixer, x = built(radius=5, block=16), stream(1, 501).requires_grad_()
    y, _ = mixer(x, Where.run(1, 501))
    truth = dense(mixer, x, 5, 16)
    torch.testing.assert_close(y, truth, rtol=0, atol=1e-12)
    with torch.no_grad():  # without gradients the tables are added within the fused kernel
        torch.testing.assert_close(mixer(x, Where.run(1, 501))[0], truth, rtol=0, atol=1e-12)
    inputs = [x, *mixer.parameters()]
    target = torch.randn(y.shape, generator=torch.Generator().manual_seed(2), dtype=y.dtype)
    got, wanted = (torch.autograd.grad((one * target).sum(), inputs) for one in (y, truth))
    for mine, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-10)


def test_laws_hold_where_rows_are_long() -> None:
    for law in LAWS[:3]:
        finding = law(built(radius=4, block=16), Case.make(WIDTH, rows=2, tokens=150))
        assert finding.holds, finding


def test_blocks_are_counted_as_their_code_counts() -> None:
    """In float32 some multiple of 1/49 falls short of a whole number; with shares of two none does."""
    where = Where.run(1, 700)
    for size, differ in ((49, True), (16, False)):
        exact, rounded = (built(block=size, rounded=flag).blocks(where) for flag in (False, True))
        assert exact[0].tolist() == numbered(700, size)
        assert torch.equal(exact, rounded) != differ
        assert int((exact - rounded).abs().max()) == int(differ)


def test_weights_are_shown() -> None:
    mixer, x = built(radius=1, block=4), stream(2, 10)
    with look(mixer) as seen:
        mixer(x, Where.ragged([10, 5]))
    (weights,) = seen["weights"]
    assert weights.shape == (2, 4, 10, 10 + 2)
    torch.testing.assert_close(weights[0].sum(-1), torch.ones(4, 10).double())
    torch.testing.assert_close(weights[1, :, :5].sum(-1), torch.ones(4, 5).double())
    assert not weights[1, :, 5:].any()
    assert not weights[1, :, :, 5:10].any()
    assert not weights[1, :, :, 11].any()  # the row has one whole block
    assert bool((weights[1, :, :5, 10] > 0).all())


def test_layers_may_share_both_tables() -> None:
    mixer = TransientGlobal.Config(radius=2, block=4)
    model = Encoder.Config(vocabulary=11, width=WIDTH, depth=3, mixer=mixer, one_position=True).build()
    first, *others = (block.mixer.position for block in model.stack.layers)
    assert all(other is first for other in others)
    assert sum(name.endswith("table") for name, _ in model.named_parameters()) == 2


def test_configurations_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="tokens look ahead and back; set both_ways"):
        TransientGlobal.Config(position=Buckets.Config())
    for options in ({"radius": -1}, {"block": 0}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            TransientGlobal.Config(**options)  # type: ignore[arg-type]


def test_dropout_falls_in_training_only() -> None:
    mixer, x, where = built(radius=4, block=2, dropout=0.5), stream(1, 9), Where.run(1, 9)
    assert not torch.equal(mixer(x, where)[0], mixer(x, where)[0])
    mixer.eval()
    assert torch.equal(mixer(x, where)[0], mixer(x, where)[0])
