"""Every wiring is the equation in its docstring, over two parts, from one end of a stack to the other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from heed.parts.layers.norms import LayerNorm
from heed.parts.residual.wired import Ends, Wiring
from heed.parts.residual.wiring import (
    DeepNorm,
    Normed,
    Parallel,
    PostNorm,
    PreNorm,
    Rescaled,
    ResiDual,
    Sandwich,
    Unrolled,
    WiringConfig,
)

WIDTH = 6
Part = Callable[[Tensor], Tensor]


def by_hand(config: WiringConfig, x: Tensor, a: Part, b: Part, n: nn.ModuleList, end: Part) -> Tensor:
    """What comes out of one block, norms and ends included. `end` is the norm at the end of the stack."""
    match config:
        case PostNorm():
            x = n[0](x + a(x))
            return end(n[1](x + b(x)))
        case DeepNorm():
            x = n[0](config.alpha * x + a(x))
            return end(n[1](config.alpha * x + b(x)))
        case PreNorm():
            x = config.alpha * x + a(n[0](x))
            return end(config.alpha * x + b(n[1](x)))
        case Normed():
            x = n[0](x) + a(n[0](x))
            return end(n[1](x) + b(n[1](x)))
        case Sandwich():
            x = x + n[1](a(n[0](x)))
            return end(x + n[3](b(n[2](x))))
        case Parallel():
            return end(x + a(n[0](x)) + b(n[-1](x)))
        case ResiDual():
            beside = config.scale * x + config.scale * a(x)
            x = n[0](x + a(x))
            beside = beside + config.scale * b(x)
            return config.alpha * n[1](x + b(x)) + end(beside)
        case Unrolled():
            x = x + a(n[0](x))
            return end(b(n[1](x)))
        case Rescaled():
            share = 1.0 if config.every is None else 0.5 ** (config.block // config.every)
            x = x + share * a(n[0](x))
            x = x + share * b(n[1](x))
            return end(x / 2 if config.every is not None and (config.block + 1) % config.every == 0 else x)
        case _:
            raise AssertionError(f"{config!r} has no equation here")


CONFIGS = (
    *(PostNorm(), PostNorm(final=True), PreNorm(), PreNorm(final=False), PreNorm(alpha=1.7), Normed(), Sandwich()),
    *(Parallel(), Parallel(own_norms=True), DeepNorm(alpha=2.5, beta=0.3), Unrolled(), Unrolled(final=False)),
    *(ResiDual(), ResiDual(scale=0.3, alpha=1.4), Rescaled(), Rescaled(every=2)),
    *(Rescaled(every=2, block=block) for block in (1, 2, 5)),
)


def built(config: WiringConfig, dropout: float = 0.0) -> tuple[Wiring, Ends]:
    torch.manual_seed(0)
    wiring, ends = config.build(WIDTH, 2, LayerNorm(), dropout).double(), config.ends(WIDTH, LayerNorm()).double()
    for parameter in (*wiring.parameters(), *ends.parameters()):
        nn.init.normal_(parameter)
    return wiring, ends


@pytest.mark.parametrize("config", CONFIGS, ids=repr)
def test_a_wiring_is_its_equation(config: WiringConfig) -> None:
    wiring, ends = built(config)
    a, b = nn.Linear(WIDTH, WIDTH).double(), nn.Linear(WIDTH, WIDTH).double()
    x = torch.randn(2, 3, WIDTH, dtype=torch.float64)
    made = ends.leave(wiring(ends.enter(x), (a, b)))
    end = nn.Identity() if ends.final is None else ends.final
    assert torch.allclose(made, by_hand(config, x, a, b, wiring.norms, end), rtol=0, atol=1e-12)


@pytest.mark.parametrize("config", CONFIGS, ids=repr)
def test_what_a_part_gives_is_dropped_in_training_only(config: WiringConfig) -> None:
    """All of it is dropped, so that only the stream is left; the last part of an unrolled block is the stream."""
    (plain, ends), (dropping, _) = built(config), built(config, dropout=0.99999)
    parts = [lambda x: x.cos(), lambda x: x.sin()]
    x = ends.enter(torch.randn(2, 3, WIDTH, dtype=torch.float64))
    assert torch.equal(dropping.eval()(x, parts), plain(x, parts))
    if isinstance(config, Sandwich):  # the norm behind a part comes before: of nothing it makes something
        assert torch.allclose(dropping.train()(x, parts), x, rtol=0, atol=1e-12)
        return
    nothing = [torch.zeros_like, parts[1] if isinstance(config, Unrolled) else torch.zeros_like]
    assert torch.allclose(dropping.train()(x, parts), plain(x, nothing), rtol=0, atol=1e-12)


def test_the_numbers_of_deep_stacks_are_those_of_the_paper() -> None:
    """Wang et al. 2022, fig. 2: N = 18 encoder layers, M = 6 decoder layers."""
    alone, encoder, decoder = DeepNorm.alone(18), DeepNorm.encoder(18, 6), DeepNorm.decoder(6)
    assert (alone.alpha, alone.beta) == pytest.approx((36**0.25, 144**-0.25))
    assert (encoder.alpha, encoder.beta) == pytest.approx((0.81 * (18**4 * 6) ** 0.0625, 0.87 * (18**4 * 6) ** -0.0625))
    assert (decoder.alpha, decoder.beta) == pytest.approx((18**0.25, 72**-0.25))
