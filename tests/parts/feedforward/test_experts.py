"""A mixture of experts against its equation, written as loops over tokens; its routers; its balance."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import ConfigError, InputError
from heed.models import Decoder
from heed.parts.feedforward import FeedForward, Gated
from heed.parts.feedforward.experts import Experts, Shared, balance, routed
from heed.parts.feedforward.mlp import Positionwise
from heed.parts.feedforward.routers import GroupedRouter, Router, Routing, SoftmaxRouter
from heed.parts.look import look

WIDTH = 24
WHERE = Where.run(2, 5)


def built(**fields: object) -> Experts:
    """With random weights, the router's correction among them."""
    torch.manual_seed(1)
    mixture = Experts.Config.load({"kind": "experts", **fields}).build(WIDTH).double().eval()
    for buffer in mixture.buffers():
        torch.nn.init.normal_(buffer, std=0.2)
    return mixture


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def expert(mixture: Experts, number: int) -> Positionwise:
    found = mixture.experts[number]
    assert isinstance(found, Positionwise)
    return found


@pytest.mark.parametrize("renormalised", [True, False])
@pytest.mark.parametrize(("experts", "active"), [(4, 2), (3, 1), (2, 2)])
@torch.no_grad()
def test_softmax_routing_is_its_equation(experts: int, active: int, renormalised: bool) -> None:
    router = SoftmaxRouter(renormalised=renormalised)
    mixture = built(experts=experts, active=active, router=router.dump(), expert=Gated.Config(hidden=7).dump())
    x = draw(2, 5, WIDTH)
    y, _ = mixture(x, WHERE)
    for b, t in ((b, t) for b in range(2) for t in range(5)):
        score = [math.exp(float(w @ x[b, t])) for w in mixture.routes.scores.weight]
        share = {e: s / sum(score) for e, s in enumerate(score)}
        chosen = sorted(share, key=lambda e: -share[e])[:active]
        total = sum(share[e] for e in chosen) if renormalised else 1.0
        wanted = sum(share[e] / total * expert(mixture, e).alone(x[b, t]) for e in chosen)
        assert torch.allclose(y[b, t], torch.as_tensor(wanted), rtol=0, atol=1e-13)


@pytest.mark.parametrize("renormalised", [True, False])
@torch.no_grad()
def test_grouped_routing_is_its_equation(renormalised: bool) -> None:
    router = GroupedRouter(groups=3, kept=2, scale=2.5, renormalised=renormalised)
    shared = Shared(expert=FeedForward.Config(hidden=5), gated=True)
    mixture = built(experts=9, active=4, router=router.dump(), shared=shared.dump())
    correction = dict(mixture.named_buffers())["routes.correction"]
    assert mixture.shared is not None
    assert mixture.shared_gate is not None
    x = draw(2, 5, WIDTH)
    y, _ = mixture(x, WHERE)
    for b, t in ((b, t) for b in range(2) for t in range(5)):
        value = [1 / (1 + math.exp(-float(w @ x[b, t]))) for w in mixture.routes.scores.weight]
        wish = [v + float(c) for v, c in zip(value, correction, strict=True)]
        best = sorted(range(3), key=lambda g: -sum(sorted(wish[3 * g : 3 * g + 3])[-2:]))[:2]
        chosen = sorted((e for g in best for e in range(3 * g, 3 * g + 3)), key=lambda e: -wish[e])[:4]
        total = sum(value[e] for e in chosen) if renormalised else 1.0
        wanted = sum(2.5 * value[e] / total * expert(mixture, e).alone(x[b, t]) for e in chosen)
        wanted = wanted + mixture.shared.alone(x[b, t]) * mixture.shared_gate(x[b, t]).sigmoid()
        assert torch.allclose(y[b, t], torch.as_tensor(wanted), rtol=0, atol=1e-13)


def test_every_expert_runs_at_most_once_and_only_if_it_is_asked() -> None:
    mixture = built(experts=6, active=2)
    sizes = dict[int, list[int]]()
    for number, module in enumerate(mixture.experts):
        sizes[number] = []
        module.gate.register_forward_hook(  # type: ignore[union-attr]
            lambda _, given, made, number=number: sizes[number].append(len(made))
        )
    with routed(mixture) as said:
        mixture(draw(1, 1, WIDTH), Where.run(1, 1))
    assert {n for n, runs in sizes.items() if runs} == set(said[0].choice.flatten().tolist())
    mixture(draw(4, 50, WIDTH), Where.run(4, 50))
    assert max(map(len, sizes.values())) <= 2
    assert sum(map(sum, sizes.values())) == 2 * (1 + 200)


def test_padding_is_never_routed() -> None:
    mixture = built(experts=4, active=2)
    x, where = draw(2, 5, WIDTH), Where.ragged([5, 2])
    x[1, 2:] = float("nan")
    with routed(mixture) as said:
        y, _ = mixture(x, where)
    assert len(said[0].choice) == 7
    assert bool((y[1, 2:] == 0).all())
    nobody, _ = mixture(x[1:, 2:], Where.ragged([0], width=3))
    assert bool((nobody == 0).all())


def test_looking_shows_the_scores_of_the_router() -> None:
    model = Decoder.Config(vocabulary=7, width=WIDTH, depth=2, feedforward=Experts.Config(experts=3)).build().eval()
    tokens = torch.tensor([[1, 2, 3]])
    plain, _ = model(tokens, Where.run(1, 3))
    with look(model, "*.feedforward.router") as seen:
        assert torch.equal(model(tokens, Where.run(1, 3))[0], plain)
    assert [scores.shape for name in seen for scores in seen[name]] == [(1, 3, 3)] * 2


def test_whoever_learns_gets_a_gradient_even_without_a_token() -> None:
    mixture = built(experts=16, active=1).train()
    mixture(draw(1, 2, WIDTH), Where.run(1, 2))[0].sum().backward()
    assert all(parameter.grad is not None for parameter in mixture.experts.parameters())


def test_balance_is_its_equation() -> None:
    model = Decoder.Config(vocabulary=7, width=WIDTH, depth=2, feedforward=Experts.Config(experts=3, active=2)).build()
    with routed(model) as said:
        model.double()(torch.tensor([[1, 2, 3], [4, 5, 6]]), Where.ragged([3, 2]))
    rows = [(scores, choice) for one in said for scores, choice in zip(one.logits, one.choice, strict=True)]
    assert len(rows) == 2 * 5
    used = [sum(e in choice for _, choice in rows) / len(rows) for e in range(3)]
    mean = [sum(float(scores.detach().softmax(0)[e]) for scores, _ in rows) / len(rows) for e in range(3)]
    lost = balance(said)
    assert float(lost.detach()) == pytest.approx(3 * sum(f * p for f, p in zip(used, mean, strict=True)), abs=1e-12)
    lost.backward()
    routers = [module for module in model.modules() if isinstance(module, Router)]
    assert all(router.scores.weight.grad is not None for router in routers)
    with routed(model) as again:
        pass
    with pytest.raises(InputError, match="nothing was routed"):
        balance(again)


def test_balance_is_least_where_all_experts_are_used_alike() -> None:
    even = Routing(torch.zeros(4, 4), torch.tensor([[0, 1], [2, 3], [0, 2], [1, 3]]), torch.ones(4, 2))
    assert float(balance([even])) == pytest.approx(2.0)
    one = torch.tensor([[9.0, 9.0, 0.0, 0.0]]).expand(4, 4)
    assert float(balance([Routing(one, torch.tensor([[0, 1]] * 4), torch.ones(4, 2))])) == pytest.approx(4.0, abs=1e-2)


def test_impossible_mixtures_are_refused() -> None:
    with pytest.raises(ConfigError, match="3 experts per token are more than there are, which is 2"):
        Experts.Config(experts=2, active=3)
    with pytest.raises(ConfigError, match="kept = 3 is more than there are groups, which is 2"):
        GroupedRouter(groups=2, kept=3)
    for experts, active, groups in ((7, 2, 2), (4, 2, 4), (8, 5, 2)):
        with pytest.raises(ConfigError, match="groups must be equal and hold two experts at least"):
            Experts.Config(experts=experts, active=active, router=GroupedRouter(groups=groups)).build(WIDTH)


@pytest.mark.parametrize("router", [SoftmaxRouter(), GroupedRouter(groups=2, kept=1)], ids=repr)
def test_half_precision_is_routed_as_exactly_as_float32(router: SoftmaxRouter | GroupedRouter) -> None:
    """Rounded to 8 bits the two best of these would be equal, and either might be chosen with any share."""
    routes = router.build(WIDTH, 4, 2)
    logits = torch.tensor([[4.0, 4.03125, -9.0, -9.0], [0.0, 0.0078125, 0.015625, -5.0]])
    assert torch.equal(logits.bfloat16().float(), logits)
    exact, half = routes.choose(logits), routes.choose(logits.bfloat16())
    assert half[1].dtype == torch.float32
    for one, other in zip(exact, half, strict=True):
        assert torch.equal(one, other)
