"""Latent attention against its equation, and its two forms against one another."""

from __future__ import annotations

import math
from copy import deepcopy

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import ConfigError
from heed.core.spec import price, words
from heed.core.state import nbytes
from heed.mixers import LatentAttention
from heed.mixers.mla import CAUSAL
from heed.parts.layers.lora import LoraLinear
from heed.parts.positions import Rope

WIDTH = 24
CONFIGS = [
    *LatentAttention.Config.samples(),
    LatentAttention.Config(heads=3, rank=40, plain=5, turned=6, value_size=11, query_rank=9),
]


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def built(config: object) -> LatentAttention:
    assert isinstance(config, LatentAttention.Config)
    torch.manual_seed(1)
    return config.build(WIDTH).double().eval()


@pytest.mark.parametrize("layout", ["pairs", "halves"])
def test_latent_attention_is_its_equation(layout: str) -> None:
    rope = Rope.Config.load({"kind": "rope", "layout": layout})
    mixer = built(LatentAttention.Config(heads=2, rank=5, query_rank=7, plain=3, turned=4, value_size=6, position=rope))
    assert mixer.compress_query is not None
    assert mixer.query_norm is not None
    x, where = draw(1, 6, WIDTH), Where.run(1, 6, start=3)
    y, _ = mixer(x, where)

    def turn(part: Tensor, t: int) -> Tensor:
        turned = part.clone()
        for c in range(2):
            a, b = (2 * c, 2 * c + 1) if layout == "pairs" else (c, c + 2)
            angle = (3 + t) * 10000 ** (-2 * c / 4)
            turned[a] = part[a] * math.cos(angle) - part[b] * math.sin(angle)
            turned[b] = part[b] * math.cos(angle) + part[a] * math.sin(angle)
        return turned

    made = [mixer.compress(x[0, t]) for t in range(6)]
    latent, shared = [mixer.norm(m[:5]) for m in made], [turn(m[5:], t) for t, m in enumerate(made)]
    up = mixer.expand.weight.view(2, 9, 5)
    for t in range(6):
        asked = mixer.query(mixer.query_norm(mixer.compress_query(x[0, t]))).view(2, 7)
        heads = []
        for h in range(2):
            plain, turned = asked[h, :3], turn(asked[h, 3:], t)
            score = [plain @ (up[h, :3] @ latent[j]) + turned @ shared[j] for j in range(t + 1)]
            weight = (torch.stack(score) / math.sqrt(7)).softmax(0)
            heads.append(sum(weight[j] * (up[h, 3:] @ latent[j]) for j in range(t + 1)))
        wanted = mixer.out(torch.cat([torch.as_tensor(head) for head in heads]))
        assert torch.allclose(y[0, t], wanted, rtol=0, atol=1e-13)


@pytest.mark.parametrize("config", CONFIGS, ids=repr)
@pytest.mark.parametrize("lengths", [[1, 1], [4, 4], [1, 0], [4, 2]])
def test_the_absorbed_form_is_the_expanded_one(config: object, lengths: list[int]) -> None:
    """Values and gradients, for one token and for several, whole and ragged."""
    mixer = built(config)
    _, state = mixer(draw(2, 5, WIDTH), Where.ragged([5, 3]), mixer.start(2))
    assert state is not None
    here = Where.ragged(lengths, start=torch.tensor([5, 3]), width=max(lengths))
    x = here.blank(draw(2, max(lengths), WIDTH))
    seen, _ = state.append(here, mixer._entries(x, here))
    sight, query = CAUSAL(here, seen), mixer._queries(x, here)
    slow, fast = (form(query, seen, sight) for form in (mixer.expanded, mixer.absorbed))
    assert torch.allclose(fast, slow, rtol=0, atol=1e-13)
    learnt = [mixer.expand.weight, mixer.query.weight, mixer.compress.weight]
    target = torch.linspace(-1, 1, slow.numel(), dtype=slow.dtype).view_as(slow)
    pairs = [torch.autograd.grad((y * target).sum(), learnt, retain_graph=True) for y in (slow, fast)]
    for a, b in zip(*pairs, strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-12)


def test_an_edited_projection_is_called_and_not_read() -> None:
    """One token beside many would be computed without expanding them, by the matrix itself, which an adapter is not."""
    mixer = built(LatentAttention.Config(heads=2, rank=3, plain=4, turned=2))
    assert mixer._few(1, 30)
    adapter = LoraLinear(mixer.expand, rank=2, scale=0.5).double()
    torch.nn.init.normal_(adapter.b)
    x, merged = draw(1, 30, WIDTH), deepcopy(mixer)
    merged.expand.weight.data += adapter.change.detach()
    mixer.expand = adapter  # type: ignore[assignment]  # as an edit does it
    assert not mixer._few(1, 30)
    ends = []
    for one in (mixer, merged):
        _, state = one(x[:, :29], Where.run(1, 29), one.start(1))
        ends.append(one(x[:, 29:], Where.run(1, 1, start=29), state)[0])
    assert torch.allclose(ends[0], ends[1], rtol=0, atol=1e-12)


def test_the_past_is_never_expanded_for_one_token() -> None:
    mixer = built(LatentAttention.Config(rank=16, plain=8, turned=4))
    rows = list[int]()
    mixer.expand.register_forward_hook(lambda module, given, made: rows.append(made.shape[1]))
    with torch.no_grad():
        _, state = mixer(draw(1, 50, WIDTH), Where.run(1, 50), mixer.start(1))
        assert rows == [50]  # a whole text is cheaper expanded
        for t in range(50, 53):
            _, state = mixer(draw(1, 1, WIDTH), Where.run(1, 1, start=t), state)
    assert rows == [50]


def test_it_remembers_the_latent_and_the_shared_key_and_nothing_else() -> None:
    mixer = LatentAttention.Config(heads=16, rank=16, turned=4, plain=8).build(WIDTH)
    assert words(mixer.spec()) == "(rank + turned) numbers per token"
    with torch.no_grad():
        _, state = mixer(draw(2, 7, WIDTH).float(), Where.run(2, 7), mixer.start(2))
    assert nbytes(state) == 2 * price(mixer.spec(), 7) == 2 * 7 * (20 * 4 + 16)


def test_odd_rotations_are_refused() -> None:
    with pytest.raises(ConfigError, match="channels turn two by two"):
        LatentAttention.Config(turned=3).build(WIDTH)
