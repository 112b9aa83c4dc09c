"""Nyström attention against its equation written as loops, and near the attention that it stands for."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import ConfigError
from heed.core.laws import Case, rows
from heed.mixers import Attention, Nystrom
from heed.parts.look import look
from heed.weights.replays.hidden import with_weights_of
from heed.weights.replays.shapes.unmasked import OneBatch
from tests.mixers.growth import grows

WIDTH = 24


def draw(*shape: int, seed: int = 3) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def built(**options: Any) -> Nystrom:
    torch.manual_seed(1)
    return Nystrom.Config(**options).build(WIDTH).double().eval()


def means(x: Tensor, landmarks: int) -> Tensor:
    """Over parts that begin at ⌈p·n/l⌉: as equal as can be."""
    tokens = len(x)
    ends = [math.ceil(part * tokens / landmarks) for part in range(landmarks + 1)]
    sizes = [end - begin for begin, end in pairwise(ends)]
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) > 0
    return torch.stack([x[begin:end].mean(0) for begin, end in pairwise(ends)])


def by_hand(mixer: Nystrom, x: Tensor, inverse: Any) -> Tensor:
    """One row; `inverse` makes A⁺ of all heads' A [H, l, l]."""
    size, groups = mixer.head_size, mixer.heads // mixer.kv_heads
    split = [linear(x).split(size, 1) for linear in (mixer.query, mixer.key, mixer.value)]
    q, k, v = split[0], *([part[h // groups] for h in range(mixer.heads)] for part in split[1:])
    some = [(means(a, mixer.landmarks), means(b, mixer.landmarks)) for a, b in zip(q, k, strict=True)]
    middle = inverse(torch.stack([(a @ b.T * mixer.scale).softmax(-1) for a, b in some]))
    heads = []
    for h, (a, b) in enumerate(some):
        embeddings, back = (q[h] @ b.T * mixer.scale).softmax(-1), (a @ k[h].T * mixer.scale).softmax(-1)
        heads.append(embeddings @ middle[h] @ back @ v[h] + beside(mixer, v[h], h))
    made: Tensor = mixer.out(torch.cat(heads, 1))
    return made


def beside(mixer: Nystrom, value: Tensor, head: int) -> Tensor:
    if mixer.convolution is None:
        return torch.zeros_like(value)
    weight = mixer.convolution.weight[head].flatten()
    made = torch.zeros_like(value)
    for i in range(len(value)):
        for o, w in enumerate(weight):
            j = i + o - len(weight) // 2
            if 0 <= j < len(value):
                made[i] = made[i] + w * value[j]
    return made


def rounds(matrix: Tensor, scale: Tensor, times: int = 6) -> Tensor:
    guess, one = matrix.mT / scale, torch.eye(matrix.shape[-1], dtype=matrix.dtype)
    for _ in range(times):
        guess = guess @ (13 * one - matrix @ guess @ (15 * one - matrix @ guess @ (7 * one - matrix @ guess))) / 4
    return guess


def per_head(matrix: Tensor) -> Tensor:
    return torch.stack([rounds(one, one.sum(0).max()) for one in matrix])


def per_row(matrix: Tensor) -> Tensor:
    return rounds(matrix, matrix.sum(1).max())


@pytest.mark.parametrize("tokens", [5, 8, 11])
@pytest.mark.parametrize("options", [{}, {"kv_heads": 2, "kernel": 3}, {"kernel": 0, "bias": False}], ids=str)
def test_nystrom_attention_is_its_equation(tokens: int, options: dict[str, Any]) -> None:
    x = draw(2, tokens, WIDTH)
    for coefficient, inverse in (("head", per_head), ("row", per_row)):
        mixer = built(landmarks=4, coefficient=coefficient, **options)
        y, _ = mixer(x, Where.run(2, tokens))
        for row in range(2):
            assert torch.allclose(y[row], by_hand(mixer, x[row], inverse), rtol=0, atol=1e-13)


def test_a_row_is_cut_by_its_own_length() -> None:
    mixer, x, lengths = built(landmarks=3, kernel=3), draw(4, 11, WIDTH), [11, 5, 3, 7]
    y, _ = mixer(x, Where.ragged(lengths))
    for row, length in enumerate(lengths):
        if length > 3:
            assert torch.allclose(y[row, :length], by_hand(mixer, x[row, :length], per_head), rtol=0, atol=1e-13)


def test_no_more_tokens_than_landmarks_are_attended_exactly() -> None:
    mixer = built(landmarks=5, kernel=0)
    plain = Attention.Config.load({"mask": {"kind": "whole"}}).build(WIDTH).double()
    plain.load_state_dict(mixer.state_dict())
    x = draw(2, 8, WIDTH)
    for tokens in (1, 5):
        here = Where.run(2, tokens)
        assert torch.allclose(mixer(x[:, :tokens], here)[0], plain(x[:, :tokens], here)[0], rtol=0, atol=1e-14)
    assert not torch.allclose(mixer(x, Where.run(2, 8))[0], plain(x, Where.run(2, 8))[0], rtol=0, atol=1e-5)


def test_many_rounds_find_the_inverse() -> None:
    mixer, x = built(landmarks=3, rounds=40), draw(2, 9, WIDTH)
    y, _ = mixer(x, Where.run(2, 9))
    assert torch.allclose(y[1], by_hand(mixer, x[1], torch.linalg.pinv), rtol=0, atol=1e-9)


def test_the_coefficient_of_a_batch_couples_its_rows() -> None:
    """As the authors' code has it, which replays only: for one row alone it is that of the row."""
    x, row = 3 * draw(3, 9, WIDTH), built(landmarks=4, coefficient="row")
    batch = with_weights_of(row, OneBatch)
    alone, _ = batch(x[1:2], Where.run(1, 9))
    assert torch.equal(alone, row(x[1:2], Where.run(1, 9))[0])
    assert not torch.allclose(alone[0], batch(x, Where.run(3, 9))[0][1], rtol=0, atol=1e-6)
    assert not rows(batch, Case.make(WIDTH)).holds
    assert rows(row, Case.make(WIDTH)).holds


def test_looking_shows_the_whole_matrix() -> None:
    mixer, x, lengths = built(landmarks=4, kernel=0), draw(2, 9, WIDTH), [9, 3]
    with look(mixer) as seen:
        y, _ = mixer(x, Where.ragged(lengths))
    (weights,) = seen["weights"]
    assert weights.shape == (2, 4, 9, 9)
    made = mixer.merge(torch.einsum("bhtn,bnhd->bthd", weights, mixer.values(x)))
    for row, length in enumerate(lengths):
        assert torch.allclose(made[row, :length], y[row, :length], rtol=0, atol=1e-13)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="a kernel of 4 tokens has no middle; use an odd number, or 0 for no"):
        Nystrom.Config(kernel=4)
    for field in ("landmarks", "rounds"):
        with pytest.raises(ConfigError, match=field):
            Nystrom.Config.load({field: 0})
    with pytest.raises(ConfigError, match="coefficient"):
        Nystrom.Config.load({"coefficient": "column"})


def test_it_grows_with_the_length_and_no_faster() -> None:
    assert grows(Nystrom.Config(landmarks=8, kernel=5)) < 4.5
