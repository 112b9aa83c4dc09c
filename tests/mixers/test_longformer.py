"""Longformer is its two equations, in every arrangement; it never holds all pairs; what cannot be is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import ConfigError, InputError
from heed.core.laws import LAWS, Case
from heed.mixers import Attention, Longformer
from heed.models import Encoder
from heed.parts.layers.norms import RMSNorm
from heed.parts.look import look
from heed.parts.masks import Atrous, Window
from tests.mixers.growth import Largest

WIDTH = 24


def built(**options: Any) -> Longformer:
    torch.manual_seed(0)
    return Longformer.Config(**options).build(WIDTH).double()


def stream(rows: int, tokens: int) -> Tensor:
    draw = torch.Generator().manual_seed(1)
    return torch.randn(rows, tokens, WIDTH, generator=draw, dtype=torch.float64)


def some(rows: int, tokens: int, *places: tuple[int, int]) -> Tensor:
    marked = torch.zeros(rows, tokens, dtype=torch.bool)
    for row, token in places:
        marked[row, token] = True
    return marked


def one_head(query: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
    weight = [math.exp(float(query @ key) / math.sqrt(len(query))) for key in keys]
    return sum((w / sum(weight) * value for w, value in zip(weight, values, strict=True)), torch.zeros_like(query))


@torch.no_grad()
def by_loops(mixer: Longformer, x: Tensor, lengths: list[int], marked: Tensor, steps: list[int], side: int) -> Tensor:
    """The two equations, token by token and head by head. `steps` [H] are the dilations."""
    size, shared = mixer.head_size, mixer.heads // mixer.kv_heads
    y = torch.zeros(*x.shape[:2], mixer.heads * size, dtype=x.dtype)
    for b, length in enumerate(lengths):
        for i in range(length):
            own = bool(marked[b, i])
            layers = [mixer.query_global, mixer.key_global, mixer.value_global]
            query, key, value = layers if own else [mixer.query, mixer.key, mixer.value]
            for h, step in enumerate(steps):
                near = [j for j in range(length) if abs(i - j) <= side * step and (i - j) % step == 0]
                seen = range(length) if own else sorted({*near, *marked[b, :length].nonzero()[:, 0].tolist()})
                mine, theirs = slice(h * size, h * size + size), slice(h // shared * size, h // shared * size + size)
                told = [(key(x[b, j])[theirs], value(x[b, j])[theirs]) for j in seen]
                y[b, i, mine] = one_head(query(x[b, i])[mine], [k for k, _ in told], [v for _, v in told])
    return mixer.out(y)


@pytest.mark.parametrize(
    ("options", "steps", "side"),
    [
        ({"window": 4}, [1, 1, 1, 1], 2),
        ({"window": 6, "kv_heads": 2, "bias": False}, [1, 1, 1, 1], 3),
        ({"window": 2, "dilation": (1, 3)}, [1, 1, 3, 3], 1),
        ({"window": 4, "dilation": (2, 1, 1, 4), "kv_heads": 1}, [2, 1, 1, 4], 2),
    ],
)
def test_both_equations(options: dict[str, Any], steps: list[int], side: int) -> None:
    mixer, x, lengths = built(**options), stream(3, 12), [12, 7, 9]
    marked = some(3, 12, (0, 0), (0, 5), (0, 6), (1, 3), (1, 8))  # one of them is padding, one row has none
    y, _ = mixer(x, Where.ragged(lengths).give(marked=marked))
    truth = by_loops(mixer, x, lengths, marked, steps, side)
    real = Where.ragged(lengths).real
    torch.testing.assert_close(y[real], truth[real], rtol=0, atol=1e-13)
    torch.testing.assert_close(y[~real], mixer.out(torch.zeros(1, WIDTH).double()).expand_as(y[~real]))


def dense(mixer: Longformer, x: Tensor, marked: Tensor, steps: list[int], side: int) -> Tensor:
    """The same with all pairs written out, to be differentiated. No padding."""
    rows, tokens = marked.shape
    gap = torch.arange(tokens)[:, None] - torch.arange(tokens)
    band = torch.stack([(gap.abs() <= side * step) & (gap % step == 0) for step in steps])
    visible = band | marked[:, None, None]

    def heads(layer: torch.nn.Module) -> Tensor:
        return layer(x).view(rows, tokens, mixer.heads, -1).transpose(1, 2)

    def mixed(query: Tensor, key: Tensor, value: Tensor, shown: Tensor) -> Tensor:
        score = (query @ key.mT * mixer.head_size**-0.5).masked_fill(~shown, float("-inf"))
        return score.softmax(-1) @ value

    near = mixed(heads(mixer.query), heads(mixer.key), heads(mixer.value), visible)
    asked, key, value = map(heads, (mixer.query_global, mixer.key_global, mixer.value_global))
    far = mixed(asked, key, value, torch.ones_like(visible))
    return mixer.out(torch.where(marked[:, None, :, None], far, near).transpose(1, 2).flatten(2))


@pytest.mark.parametrize(("dilation", "steps"), [((1,), [1] * 4), ((1, 3), [1, 1, 3, 3])])
def test_long_rows_and_their_gradients(dilation: tuple[int, ...], steps: list[int]) -> None:
    """At so many tokens bands go block by block, and classes of a dilation are sequences of their own."""
    mixer, x = built(window=10, dilation=dilation), stream(2, 501).requires_grad_()
    marked = some(2, 501, (0, 0), (0, 77), (0, 78), (0, 500), (1, 250))
    y, _ = mixer(x, Where.run(2, 501).give(marked=marked))
    truth = dense(mixer, x, marked, steps, 5)
    torch.testing.assert_close(y, truth, rtol=0, atol=1e-12)
    inputs = [x, *mixer.parameters()]
    target = torch.randn(y.shape, generator=torch.Generator().manual_seed(2), dtype=y.dtype)
    got, wanted = (  # a shift of all keys is not seen, and may not be used at all
        torch.autograd.grad((one * target).sum(), inputs, materialize_grads=True) for one in (y, truth)
    )
    for mine, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-10)


def test_few_marked_tokens_need_no_keys() -> None:
    for options in ({}, {"kv_heads": 2}, {"bias": False}):
        mixer, x = built(**options), stream(2, 40)
        where = Where.ragged([40, 33])
        query = torch.randn(2, 3, 4, 6, dtype=torch.float64)
        sight = Window(back=99, ahead=99)(Where.run(2, 3), where)
        y, truth = (form(query, where.blank(x), sight) for form in (mixer.absorbed, mixer.expanded))
        torch.testing.assert_close(y, truth, rtol=0, atol=1e-13)
    assert built(heads=2)._few(1, 100)
    assert not built()._few(20, 100)
    assert not built(heads=2, clip=0.5)._few(1, 100)
    assert not built(heads=2, head_norm=RMSNorm())._few(1, 100)  # keys are normed before they are multiplied
    dropping = built(heads=2, dropout=0.5)
    assert not dropping._few(1, 100)  # weights are dropped, which the form without keys never has
    assert dropping.eval()._few(1, 100)


def test_what_marked_tokens_see_is_dropped_in_training_too() -> None:
    """One marked token among forty: without dropout it is computed without keys."""
    mixer, x, where = built(heads=2, window=2, dropout=0.5, marks=(0,)), stream(1, 40), Where.run(1, 40)
    plain = built(heads=2, window=2, marks=(0,))
    plain.load_state_dict(mixer.state_dict())
    assert plain._few(1, 40)
    assert not torch.allclose(mixer(x, where)[0][0, 0], mixer(x, where)[0][0, 0])
    torch.testing.assert_close(mixer.eval()(x, where)[0], plain(x, where)[0], rtol=0, atol=1e-13)


def test_marks_are_orders_wherever_a_row_begins() -> None:
    """A call that begins with token 2 has token 3 in its second column."""
    mixer, x = built(window=2, marks=(3,)), stream(1, 8)
    told = mixer(x, Where.run(1, 8, start=2).give(marked=some(1, 8, (0, 1))))[0]
    assert torch.equal(mixer(x, Where.run(1, 8, start=2))[0], told)


def test_a_call_that_marks_tokens_is_not_asked_for_others() -> None:
    always, never, x = built(window=2, marks=(0, 3)), built(window=2), stream(1, 8)
    never.load_state_dict(always.state_dict())
    where = Where.run(1, 8)
    by_order = never(x, where.give(marked=some(1, 8, (0, 0), (0, 3))))[0]
    assert torch.equal(always(x, where)[0], by_order)
    none = where.give(marked=some(1, 8))
    assert torch.equal(always(x, none)[0], never(x, where)[0])
    assert not torch.allclose(always(x, none)[0], by_order)
    assert torch.equal(
        always(x[:, :2], Where.run(1, 2))[0], never(x[:, :2], Where.run(1, 2).give(marked=some(1, 2, (0, 0))))[0]
    )


def test_weights_are_shown() -> None:
    mixer, x = built(window=2), stream(2, 9)
    marked = some(2, 9, (0, 4), (1, 0), (1, 7))
    with look(mixer) as seen:
        y, _ = mixer(x, Where.ragged([9, 8]).give(marked=marked))
    (weights,) = seen["weights"]
    assert weights.shape == (2, 4, 9, 9)
    total = weights.sum(-1)
    torch.testing.assert_close(total[0], torch.ones_like(total[0]))
    assert not total[1, :, 8].any()
    assert not weights[0, :, 0, 2].any()
    assert bool((weights[0, :, 0, 4] > 0).all())
    assert bool((weights[0, :, 4] > 0).all())
    value = mixer.values(x)
    mixed = mixer.merge(torch.einsum("bhtn,bnhe->bthe", weights, value))
    torch.testing.assert_close(mixed[0, :4], y[0, :4])


@pytest.mark.parametrize("options", [{}, {"dilation": (1, 2)}])
def test_what_is_held_grows_with_the_tokens(options: dict[str, Any]) -> None:
    held = []
    for tokens in (1024, 2048):
        mixer, x = built(window=32, marks=(0, 9), **options).float(), stream(1, tokens).float().requires_grad_()
        with Largest() as largest:
            mixer(x, Where.run(1, tokens))[0].sum().backward()
        held.append(largest.numbers)
    assert held[1] <= 2.2 * held[0]
    assert held[1] < 2048**2 / 8


def test_laws_hold_where_rows_are_long() -> None:
    mixer = built(window=8, marks=(0, 60))
    for law in LAWS[:3]:
        finding = law(mixer, Case.make(WIDTH, rows=2, tokens=150))
        assert finding.holds, finding


def test_the_causal_form_is_attention() -> None:
    """Section 4 of the paper: w tokens back, dilated in some layers; no token is marked."""
    mixer = Attention.Config(heads=1, mask=Window(back=6) & Atrous(step=2)).build(8).double()
    assert mixer.streams
    x = torch.randn(1, 150, 8, dtype=torch.float64)
    y, _ = mixer(x, Where.run(1, 150))
    query, key, value = (layer(x[0]).detach() for layer in (mixer.query, mixer.key, mixer.value))
    for i in (0, 3, 5, 99, 149):
        seen = [j for j in (i - 6, i - 4, i - 2, i) if j >= 0]
        mean = one_head(query[i], [key[j] for j in seen], [value[j] for j in seen])
        torch.testing.assert_close(y[0, i], mixer.out(mean), rtol=0, atol=1e-13)


def test_windows_may_grow_over_the_depth() -> None:
    layers = tuple(Longformer.Config(window=window, dilation=(1, 1, 1, step)) for window, step in ((2, 1), (4, 2)))
    model = Encoder.Config(vocabulary=11, width=WIDTH, depth=4, mixer=layers).build().double()
    bands = [part.masks[-1].reach for part in model.stack.modules() if isinstance(part, Longformer)]
    assert [reach.back for reach in bands] == [1, 4, 1, 4]
    tokens = torch.randint(11, (2, 9))
    where = Where.run(2, 9)
    plain, told = model(tokens, where)[0], model(tokens, where.give(marked=some(2, 9, (0, 4))))[0]
    assert not torch.allclose(plain[0], told[0])
    assert torch.allclose(plain[1], told[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"window": 5}, "a window of 5 has no two halves; use 4 or 6"),
        ({"window": 1}, "a window of 1 has no two halves; use 2"),
        ({"window": 0}, "window"),
        ({"window": -4}, "window"),
        ({"dilation": (1, 2, 3)}, "4 heads do not fall into 3 groups"),
        ({"dilation": ()}, "4 heads do not fall into 0 groups"),
        ({"dilation": (0,)}, "dilation"),
        ({"marks": (-1,)}, "marks"),
    ],
)
def test_configurations_that_cannot_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Longformer.Config(**options)


@pytest.mark.parametrize("marked", [some(2, 5), some(1, 6), some(2, 6).long(), some(2, 6)[0]])
def test_marks_of_another_shape_are_refused(marked: Tensor) -> None:
    with pytest.raises(InputError, match=r"marked is .* needed is a boolean for each token, \[2, 6\]"):
        built()(stream(2, 6), Where.run(2, 6).give(marked=marked))


def test_dropout_falls_in_training_only() -> None:
    mixer, x, where = built(window=4, dropout=0.5, marks=(0,)), stream(1, 9), Where.run(1, 9)
    assert not torch.equal(mixer(x, where)[0], mixer(x, where)[0])
    mixer.eval()
    assert torch.equal(mixer(x, where)[0], mixer(x, where)[0])
