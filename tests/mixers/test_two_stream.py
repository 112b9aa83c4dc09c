"""Two-stream attention against its equation, in any order of revelation, cut and whole."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import ConfigError, InputError
from heed.core.spec import price, words
from heed.core.state import Seen
from heed.mixers import TwoStream
from heed.parts.look import look
from heed.parts.masks import Causal, Mask, Whole, Window
from heed.parts.positions.scored import Relative
from tests.mixers.growth import Largest

WIDTH, HEADS, SIZE = 24, 4, 6
ROWS, TOKENS = 2, 7
BOUND = 1e-12


def mixer_of(mask: Mask, clamp: int | None = None, *, segments: bool = True) -> TwoStream:
    torch.manual_seed(0)
    position = Relative.Config(clamp=clamp, both_ways=True)
    mixer = TwoStream.Config(mask=mask, segments=segments, position=position).build(WIDTH).double()
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.4)
    return mixer.eval()


def draw(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def permuted(seed: int = 3) -> Where:
    """Tokens in the order of the text, revealed in a random order, some of another segment."""
    dice = torch.Generator().manual_seed(seed)
    order = torch.stack([torch.randperm(TOKENS, generator=dice) for _ in range(ROWS)])
    where = Where(order, torch.arange(TOKENS).expand(ROWS, -1) + 5)
    return where.give(segment=torch.randint(3, (ROWS, TOKENS), generator=dice))


def seen_by(mask: Mask, i: int, j: int, *, itself: bool) -> bool:
    """Whether a token of rank i sees one of rank j."""
    if isinstance(mask, Window):
        return (i - mask.back <= j < i) or (itself and i == j)
    return (j <= i if isinstance(mask, Causal) else True) and (itself or i != j)


def by_loops(mixer: TwoStream, asks: Tensor, x: Tensor, where: Where, clamp: int | None, *, itself: bool) -> Tensor:
    """The equation, one pair and one head at a time."""
    position, segment = where.position, where.given.segment
    assert segment is not None
    assert mixer.segment is not None
    assert mixer.segment_bias is not None
    y = torch.zeros(ROWS, TOKENS, WIDTH, dtype=torch.float64)
    for b in range(ROWS):
        for i in range(TOKENS):
            heads = torch.zeros(HEADS, SIZE, dtype=torch.float64)
            for h in range(HEADS):
                part = slice(h * SIZE, (h + 1) * SIZE)
                q = mixer.query.weight[part] @ asks[b, i]
                weights, values = [], []
                for j in range(TOKENS):
                    if not seen_by(mixer.mask, int(where.order[b, i]), int(where.order[b, j]), itself=itself):
                        continue
                    gap = int(position[b, i] - position[b, j])
                    gap = gap if clamp is None else max(-clamp, min(clamp, gap))
                    angle = [gap * 10000.0 ** (-2 * c / WIDTH) for c in range(WIDTH // 2)]
                    wave = torch.tensor([*map(math.sin, angle), *map(math.cos, angle)], dtype=torch.float64)
                    k, r = mixer.key.weight[part] @ x[b, j], mixer.position.distance.weight[part] @ wave
                    e = mixer.segment[int(segment[b, i] != segment[b, j]), h]
                    score = (q + mixer.position.u[h]) @ k + (q + mixer.position.v[h]) @ r
                    score = score + (q + mixer.segment_bias[h]) @ e
                    weights.append(math.exp(float(score) / math.sqrt(SIZE)))
                    values.append(mixer.value.weight[part] @ x[b, j])
                for weight, value in zip(weights, values, strict=True):
                    heads[h] += weight / sum(weights) * value
            y[b, i] = mixer.out.weight @ heads.flatten()
    return y


@pytest.mark.parametrize("mask", [Causal(), Whole(), Window(back=2)], ids=repr)
@pytest.mark.parametrize("clamp", [None, 2])
@torch.no_grad()
def test_both_streams_are_their_equation(mask: Mask, clamp: int | None) -> None:
    mixer, where = mixer_of(mask, clamp), permuted()
    x, g = draw(ROWS, TOKENS, WIDTH), draw(ROWS, TOKENS, WIDTH, seed=2)
    seen = Seen.of(where, *mixer.entries(x, where))
    assert torch.allclose(mixer(x, where)[0], by_loops(mixer, x, x, where, clamp, itself=True), rtol=0, atol=BOUND)
    asked = by_loops(mixer, g, x, where, clamp, itself=False)
    assert torch.allclose(mixer.ask(g, where, seen), asked, rtol=0, atol=BOUND)


@pytest.mark.parametrize("mask", [Causal(), Window(back=3)], ids=repr)
@pytest.mark.parametrize("cuts", [(0, 1, 2, 3, 4, 5, 6, 7), (0, 3, 4, 7), (0, 6, 7)])
@torch.no_grad()
def test_a_permuted_text_is_cut_in_the_order_of_its_revelation(mask: Mask, cuts: tuple[int, ...]) -> None:
    """Segments are remembered with the keys; and places may be asked about at any time."""
    mixer, where, x = mixer_of(mask), permuted(), draw(ROWS, TOKENS, WIDTH)
    whole, _ = mixer(x, where)
    first = where.order.argsort(1)  # the tokens as they are revealed
    state, made = mixer.start(ROWS), list[Tensor]()
    for begin, end in pairwise(cuts):
        column = first[:, begin:end]
        assert where.given.segment is not None
        here = Where(where.order.gather(1, column), where.position.gather(1, column))
        here = here.give(segment=where.given.segment.gather(1, column))
        y, after = mixer(x.take_along_dim(column[..., None], 1), here, state)
        assert after is not None
        state = after
        made.append(y)
    back = torch.cat(made, 1).take_along_dim(first.argsort(1)[..., None], 1)
    assert torch.allclose(back, whole, rtol=0, atol=BOUND)


def test_what_is_revealed_later_does_not_leak() -> None:
    mixer, where = mixer_of(Causal()), permuted()
    x, g = draw(ROWS, TOKENS, WIDTH).requires_grad_(), draw(ROWS, TOKENS, WIDTH, seed=2)
    seen = Seen.of(where, *mixer.entries(x, where))
    content, asked = mixer.known(x, where, seen), mixer.ask(g, where, seen)
    for i in range(TOKENS):
        for stream, strict in ((content, False), (asked, True)):
            (gradient,) = torch.autograd.grad(stream[:, i].square().sum(), x, retain_graph=True)
            influences = gradient.abs().amax(2) > 0
            rank = where.order[:, i : i + 1]
            assert torch.equal(influences, where.order < rank if strict else where.order <= rank)


def test_who_knows_nothing_gets_zeros_and_finite_gradients() -> None:
    mixer, where = mixer_of(Causal()), permuted()
    x, g = draw(ROWS, TOKENS, WIDTH).requires_grad_(), draw(ROWS, TOKENS, WIDTH, seed=2).requires_grad_()
    asked = mixer.ask(g, where, Seen.of(where, *mixer.entries(x, where)))
    blind = where.order == 0
    assert torch.equal(asked[blind], torch.zeros(ROWS, WIDTH, dtype=torch.float64))
    assert bool((asked[~blind].abs().amax(-1) > 0).all())
    gradients = torch.autograd.grad(asked.square().sum(), (x, g, *mixer.parameters()))
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)


@torch.no_grad()
def test_places_that_are_not_in_the_text_can_be_asked_about() -> None:
    """A place without a token takes what a place takes whose own token is hidden from it; padding takes nothing."""
    mixer, where = mixer_of(Causal(), segments=False), permuted()
    x, g = draw(ROWS, TOKENS, WIDTH), draw(ROWS, 2, WIDTH, seed=2)
    last = where.order.argmax(1, keepdim=True)
    asked = Where(torch.tensor([[TOKENS - 1, -1]] * ROWS), torch.cat((where.position.gather(1, last), last), 1))
    among = mixer.ask(g, asked, Seen.of(where, *mixer.entries(x, where)))
    few = where.order.argsort(1)[:, :-1]
    without = Where(where.order.gather(1, few), where.position.gather(1, few))
    entries = mixer.entries(x.take_along_dim(few[..., None], 1), without)
    assert torch.allclose(mixer.ask(g, asked, Seen.of(without, *entries)), among, rtol=0, atol=BOUND)
    assert torch.equal(among[:, 1], torch.zeros(ROWS, WIDTH, dtype=torch.float64))


@torch.no_grad()
def test_no_segments_are_all_the_same_segment() -> None:
    mixer, x = mixer_of(Causal()), draw(ROWS, TOKENS, WIDTH)
    where = Where.run(ROWS, TOKENS)
    ones = where.give(segment=torch.ones(ROWS, TOKENS, dtype=torch.long))
    other = where.give(segment=(torch.arange(TOKENS) % 2).expand(ROWS, -1))
    assert torch.allclose(mixer(x, where)[0], mixer(x, ones)[0], rtol=0, atol=BOUND)
    assert not torch.allclose(mixer(x, where)[0], mixer(x, other)[0], rtol=0, atol=1e-3)


@torch.no_grad()
def test_the_weights_of_both_streams_can_be_seen() -> None:
    mixer, where, x = mixer_of(Causal()), permuted(), draw(ROWS, TOKENS, WIDTH)
    with look(mixer) as shown:
        mixer(x, where)
        mixer.ask(x, where, Seen.of(where, *mixer.entries(x, where)))
    (content,), (asked,) = shown["weights"], shown["asked"]
    assert content.shape == asked.shape == (ROWS, HEADS, TOKENS, TOKENS)
    assert torch.allclose(content.sum(-1), torch.ones(ROWS, HEADS, TOKENS, dtype=torch.float64))
    rank = where.order[:, None, :, None]
    assert bool((asked[(where.order[:, None, None] >= rank).expand_as(asked)] == 0).all())


def test_what_is_remembered() -> None:
    mixer = TwoStream.Config(segments=True, mask=Window(back=3)).build(WIDTH)
    assert words(mixer.spec()) == "2·kv_heads·head_size + 1 numbers per token, for the last window tokens"
    assert price(mixer.spec(), 10**6) == 3 * ((2 * WIDTH + 1) * 4 + 16)
    assert words(TwoStream.Config().build(WIDTH).spec()) == "2·kv_heads·head_size numbers per token"


def test_relative_scores_are_no_larger_than_attention() -> None:
    """Nothing that is made has more elements than queries times distances, for each head."""
    mixer, tokens = TwoStream.Config(segments=True).build(WIDTH), 50
    largest = 0

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal largest
            made = function(*args, **(kwargs or {}))
            largest = max(largest, made.numel() if isinstance(made, Tensor) else 0)
            return made

    with torch.no_grad(), Watch():
        mixer(torch.randn(1, tokens, WIDTH), Where.run(1, tokens))
    assert largest <= 2 * HEADS * tokens * tokens


@torch.no_grad()
def test_along_a_window_both_streams_grow_with_the_length_and_no_faster() -> None:
    mixer, sizes = TwoStream.Config(mask=Window(back=8)).build(WIDTH), []
    for tokens in (256, 1024):
        where, after, x = Where.run(1, tokens), Where.run(1, tokens, start=1), torch.randn(1, tokens, WIDTH)
        with Largest() as most:
            mixer(x, where)
            mixer.ask(x, after, Seen.of(where, *mixer.entries(x, where)))
        sizes.append(most.numbers)
    assert sizes[1] < 4.5 * sizes[0]


BAD: dict[str, tuple[Any, type[Exception], str]] = {
    "scale": (lambda: TwoStream.Config(scale=0.5), ConfigError, "leave scale unset"),
    "heads": (lambda: TwoStream.Config(heads=5).build(WIDTH), ConfigError, "width 24 does not divide into 5 heads"),
    "segments": (
        lambda: mixer_of(Causal())(draw(1, 3, WIDTH), Where.run(1, 3).give(segment=torch.zeros(1, 4))),
        InputError,
        r"segments have the shape \[1, 4\] beside tokens of \[1, 3\]",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str) -> None:
    call, error, message = BAD[name]
    with pytest.raises(error, match=message):
        call()
