"""Memory-compressed attention against its equation, its two forms against one another, and what it remembers."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import ConfigError, InputError
from heed.core.laws import LAWS, Case
from heed.core.spec import price, words
from heed.core.state import Seen, nbytes
from heed.mixers import MemoryCompressed
from heed.mixers.memory_compressed import _first, _joined
from heed.parts.look import look

WIDTH = 24


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def built(config: MemoryCompressed.Config) -> MemoryCompressed:
    torch.manual_seed(1)
    return config.build(WIDTH).double().eval()


@pytest.mark.parametrize(("stride", "tokens"), [(3, 10), (2, 5), (4, 3), (1, 4)])
def test_it_is_its_equation(stride: int, tokens: int) -> None:
    mixer = built(MemoryCompressed.Config(heads=4, kv_heads=2, stride=stride))
    x = draw(1, tokens, WIDTH)
    y, _ = mixer(x, Where.run(1, tokens))
    q, k, v = (layer(x)[0].detach() for layer in (mixer.query, mixer.key, mixer.value))

    def shortened(layer: torch.nn.Linear, parts: Tensor, m: int) -> Tensor:
        made = layer.bias.detach().clone()
        for c in range(stride):
            for out in range(12):
                made[out] += layer.weight[out, 12 * c : 12 * c + 12].detach() @ parts[m * stride + c]
        return made

    for i in range(tokens):
        keys, values = [k[0]], [v[0]]
        for m in range((i + 1) // stride):
            keys.append(shortened(mixer.shorten_key, k, m))
            values.append(shortened(mixer.shorten_value, v, m))
        heads = []
        for h in range(4):
            one, g = slice(6 * h, 6 * h + 6), slice(6 * (h // 2), 6 * (h // 2) + 6)
            weight = [math.exp(float(q[i, one] @ key[g]) / math.sqrt(6)) for key in keys]
            heads.append(sum(w / sum(weight) * value[g] for w, value in zip(weight, values, strict=True)))
        wanted = mixer.out(torch.cat([torch.as_tensor(head) for head in heads]))
        assert torch.allclose(y[0, i], wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("config", MemoryCompressed.Config.samples(), ids=repr)
@pytest.mark.parametrize("lengths", [[11, 11], [12, 7], [2, 1], [600, 1100]])
def test_the_folded_form_is_the_masked_one(config: MemoryCompressed.Config, lengths: list[int]) -> None:
    """Values and gradients, for whole rows and ragged ones, and for more queries than are looked at together."""
    mixer, where = built(config), Where.ragged(lengths)
    x = where.blank(draw(2, max(lengths), WIDTH)).requires_grad_()
    query, near = mixer.queries(x), (mixer.keys(x), mixer.values(x))
    first, _ = _first(None, where, *near)
    groups, _ = mixer._groups(None, where, Seen.of(where, *near))
    seen = _joined(first, groups)
    forms = [form(query, seen, where) for form in (mixer.folded, mixer.masked)]
    assert torch.allclose(forms[0], forms[1], rtol=0, atol=1e-13)
    target = draw(*forms[0].shape)
    learnt = [x, mixer.shorten_key.weight, mixer.shorten_value.weight, mixer.query.weight]
    gradients = [torch.autograd.grad((y * target).sum(), learnt, retain_graph=True) for y in forms]
    for a, b in zip(*gradients, strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-11)


@pytest.mark.parametrize("stride", [2, 3, 7])
@pytest.mark.parametrize("tokens", [1, 2, 3, 23])
def test_laws_hold_at_any_length(stride: int, tokens: int) -> None:
    for law in LAWS:
        finding = law(MemoryCompressed.Config(stride=stride).build(WIDTH), Case.make(WIDTH, tokens=tokens, seed=stride))
        assert finding.holds, finding


def test_it_remembers_a_third_and_the_open_group() -> None:
    mixer = MemoryCompressed.Config(kv_heads=1).build(WIDTH)
    entry = 2 * 6 * 4 + 16
    assert price(mixer.spec(), 300) == (1 + 100 + 2) * entry
    assert "2·kv_heads·head_size numbers per stride tokens" in words(mixer.spec())
    with torch.no_grad():
        _, state = mixer(torch.randn(2, 300, WIDTH), Where.run(2, 300), mixer.start(2))
    assert nbytes(state) == 2 * price(mixer.spec(), 300)


def test_decoding_writes_in_place_and_shortens_nothing_twice() -> None:
    mixer = built(MemoryCompressed.Config(stride=3))
    made = list[int]()
    mixer.shorten_key.register_forward_hook(lambda module, given, out: made.append(out.shape[1]))
    with torch.no_grad():
        _, state = mixer(draw(1, 30, WIDTH), Where.run(1, 30), mixer.start(1))
        assert made == [10]
        places = set()
        for t in range(30, 39):
            _, state = mixer(draw(1, 1, WIDTH), Where.run(1, 1, start=t), state)
            assert state is not None
            places.add(state[1].storage()[2].data_ptr())
    assert made == [10, 1, 1, 1]
    assert len(places) <= 2  # moved once, to where there is room


def test_looking_shows_one_weight_per_entry() -> None:
    mixer = built(MemoryCompressed.Config(stride=3))
    with look(mixer) as seen:
        mixer(draw(1, 7, WIDTH), Where.run(1, 7))
    (weights,) = seen["weights"]
    assert weights.shape == (1, 4, 7, 3)  # the first token and two groups
    visible = torch.tensor([[1, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 0], [1, 1, 0], [1, 1, 1], [1, 1, 1]]) > 0
    assert torch.equal(weights[0, 0] > 0, visible)


def test_a_text_that_begins_elsewhere_has_only_whole_groups() -> None:
    """Without its first tokens there is no first token, and no group that they would have been part of."""
    mixer = built(MemoryCompressed.Config(stride=3))
    x = draw(1, 8, WIDTH)
    with look(mixer) as seen:
        y, _ = mixer(x, Where.run(1, 8, start=4))
    (weights,) = seen["weights"]
    assert torch.equal(weights.sum(-1)[0, 0] > 0, torch.arange(4, 12) >= 8)
    assert torch.equal(y[:, :4], mixer.out.bias.expand(1, 4, WIDTH))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="stride is 0"):
        MemoryCompressed.Config(stride=0)
    order = torch.tensor([[0, 1, 3]])
    with pytest.raises(InputError, match="the orders of this call have gaps"):
        built(MemoryCompressed.Config())(draw(1, 3, WIDTH), Where(order, order))
