"""Norms, feed-forwards, wirings, looking: each against its equation."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heed.core.contract import Where
from heed.core.errors import InputError
from heed.mixers import Attention
from heed.models import Decoder
from heed.parts.feedforward import FeedForward, Gated
from heed.parts.inputs.tokens import TokenEmbeddings, embedding
from heed.parts.layers.dropout import Dropout, dropped
from heed.parts.layers.norms import LayerNorm, NormConfig, RMSNorm, StdNorm
from heed.parts.look import Look, look, points
from heed.parts.residual.wiring import DeepNorm, Parallel, PostNorm, PreNorm, ResiDual, Sandwich, WiringConfig

X = torch.randn(2, 3, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
WHERE = Where.run(2, 3)


def shuffled(module: nn.Module) -> nn.Module:
    """Every parameter random, so that none can be forgotten."""
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module.double()


def close(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=0, atol=1e-13)


@pytest.mark.parametrize("config", [LayerNorm(eps=0.1), RMSNorm(eps=0.1), StdNorm(eps=0.1)], ids=lambda c: c.kind)
def test_norms_are_their_equations(config: NormConfig) -> None:
    norm = shuffled(config.build(8))
    got = norm(X)
    for b in range(2):
        for t in range(3):
            x = X[b, t]
            mean = x.sum() / 8
            square = ((x - mean) ** 2).sum()
            wanted = {
                "layernorm": (x - mean) / (square / 8 + 0.1).sqrt(),
                "rmsnorm": x / ((x**2).sum() / 8 + 0.1).sqrt(),
                "stdnorm": (x - mean) / ((square / 7).sqrt() + 0.1),
            }[config.kind]  # type: ignore[attr-defined]
            parameters = dict(norm.named_parameters())
            wanted = wanted * parameters["weight"] + parameters.get("bias", torch.zeros(8, dtype=torch.float64))
            assert close(got[b, t], wanted)


def test_norms_without_gain_or_shift() -> None:
    assert dict(LayerNorm(bias=False).build(8).named_parameters()).keys() == {"weight"}
    assert not list(RMSNorm(gain=False).build(8).parameters())


def test_a_feedforward_is_two_convolutions_of_width_one() -> None:
    part = FeedForward.Config(hidden=11).build(8)
    shuffled(part)
    up, down = nn.Conv1d(8, 11, 1).double(), nn.Conv1d(11, 8, 1).double()
    for convolution, linear in ((up, part.up), (down, part.down)):
        convolution.weight.data, bias = linear.weight.data[..., None], linear.bias
        assert convolution.bias is not None
        convolution.bias.data = bias.data
    wanted = down(F.relu(up(X.mT))).mT
    assert close(part(X, WHERE)[0], wanted)


def test_gated_and_normed_feedforwards() -> None:
    gated = Gated.Config(hidden=5, bias=True).build(8)
    shuffled(gated)
    assert close(gated(X, WHERE)[0], gated.down(F.silu(gated.gate(X)) * gated.up(X)))
    assert Gated.Config().build(24).up.out_features == 64
    normed = FeedForward.Config(activation="relu_squared", norm=LayerNorm()).build(8)
    shuffled(normed)
    assert normed.norm is not None
    assert close(normed(X, WHERE)[0], normed.down(normed.norm(F.relu(normed.up(X)) ** 2)))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_dropout_drops_its_share_and_keeps_the_mean(share: float, dtype: torch.dtype) -> None:
    """Of n elements a share p ± 5·sqrt(p(1-p)/n) is dropped: five standard deviations, once in three million."""
    x = torch.full((101, 997), 2.0, dtype=dtype).requires_grad_()
    y = Dropout(share)(x)
    room = 5 * (share * (1 - share) / x.numel()) ** 0.5
    assert abs(float((y == 0).double().mean()) - share) < room
    kept = (1 - round(share * 65536) / 65536) ** -1
    assert set(y.detach().unique().tolist()) == {0.0, float(2.0 * torch.tensor(kept, dtype=dtype))}
    (slope,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(slope * 2, y.detach())
    columns = (y.detach() == 0).double().mean(0)  # no column, and none of the four places in a word, is favoured
    assert float((columns - share).abs().max()) < 5.5 * (share * (1 - share) / 101) ** 0.5
    lanes = (y.detach().flatten()[: x.numel() // 4 * 4].view(-1, 4) == 0).double().mean(0)
    assert float((lanes - share).abs().max()) < 2 * room


def test_dropout_is_reproducible_and_off_when_not_training() -> None:
    layer, x = Dropout(0.3), torch.randn(5, 7)
    torch.manual_seed(1)
    first = layer(x)
    torch.manual_seed(1)
    assert torch.equal(first, layer(x))
    assert not torch.equal(first, layer(x))
    assert layer.eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert dropped(x, 1e-6) is x  # less than a bit can tell
    assert dropped(torch.zeros(0, 3), 0.5).shape == (0, 3)


def test_wirings_are_their_equations() -> None:
    a, b = nn.Linear(8, 8).double(), nn.Linear(8, 8).double()
    cases: dict[WiringConfig, object] = {
        PostNorm(): lambda x, n: n[1](n[0](x + a(x)) + b(n[0](x + a(x)))),
        PreNorm(): lambda x, n: (x + a(n[0](x))) + b(n[1](x + a(n[0](x)))),
        Sandwich(): lambda x, n: (x + n[1](a(n[0](x)))) + n[3](b(n[2](x + n[1](a(n[0](x)))))),
        Parallel(): lambda x, n: x + a(n[0](x)) + b(n[0](x)),
        Parallel(own_norms=True): lambda x, n: x + a(n[0](x)) + b(n[1](x)),
        DeepNorm(alpha=1.7, beta=0.5): lambda x, n: n[1](1.7 * n[0](1.7 * x + a(x)) + b(n[0](1.7 * x + a(x)))),
    }
    for config, equation in cases.items():
        wiring = config.build(8, 2, LayerNorm(), 0.0)
        shuffled(wiring)
        assert close(wiring(X, (a, b)), equation(X, wiring.norms)), config  # type: ignore[operator]


def test_residual_runs_two_streams() -> None:
    a, b = nn.Linear(8, 8).double(), nn.Linear(8, 8).double()
    config = ResiDual(scale=0.5, alpha=0.3)
    wiring, ends = config.build(8, 2, LayerNorm(), 0.0), config.ends(8, LayerNorm())
    shuffled(wiring)
    shuffled(ends)
    n = wiring.norms
    x1 = n[0](X + a(X))
    x2 = n[1](x1 + b(x1))
    residual = 0.5 * (X + a(X) + b(x1))
    assert ends.final is not None
    assert close(ends.leave(wiring(ends.enter(X), (a, b))), 0.3 * x2 + ends.final(residual))


def test_deepnorm_has_the_papers_numbers() -> None:
    assert DeepNorm.alone(8).alpha == pytest.approx(2.0)
    assert DeepNorm.alone(2).beta == pytest.approx(0.5)
    assert DeepNorm.decoder(27).alpha == pytest.approx(3.0)
    assert DeepNorm.encoder(6, 6).alpha == pytest.approx(0.81 * 6 ** (5 / 16))
    plain = Decoder.Config(vocabulary=5, width=8, depth=2)
    torch.manual_seed(3)
    big = plain.build()
    torch.manual_seed(3)
    small = plain.model_copy(update={"wiring": DeepNorm(alpha=1.0, beta=0.25)}).build()
    first, second = dict(big.named_parameters()), dict(small.named_parameters())
    for name in ("mixer.value", "mixer.out", "feedforward.up", "feedforward.down"):
        weight = f"stack.blocks.1.{name}.weight"
        assert torch.equal(first[weight] * 0.25, second[weight])
    weight = "stack.blocks.1.mixer.query.weight"
    assert torch.equal(first[weight], second[weight])


def test_looking_shows_the_weights_and_changes_nothing() -> None:
    model = Decoder.Config(vocabulary=5, width=8, depth=2, mixer=Attention.Config(heads=2)).build().eval()
    tokens, where = torch.tensor([[1, 2, 3]]), Where.run(1, 3)
    plain, _ = model(tokens, where)
    with look(model, "stack.blocks.*.mixer.weights") as seen:
        watched, _ = model(tokens, where)
        model(tokens, where)
    again, _ = model(tokens, where)
    assert torch.equal(plain, watched)
    assert torch.equal(plain, again)
    assert list(seen) == ["stack.blocks.0.mixer.weights", "stack.blocks.1.mixer.weights"]
    (first, second) = seen["stack.blocks.1.mixer.weights"]
    assert first.shape == (1, 2, 3, 3)
    assert torch.equal(first, second)
    assert torch.allclose(first.sum(-1), torch.ones(1, 2, 3), atol=1e-6)  # three float32 weights of at most one
    assert not first.requires_grad


def test_several_may_look_at_once_and_nothing_is_computed_for_nobody() -> None:
    point, calls = Look(), 0

    def recipe() -> Tensor:
        nonlocal calls
        calls += 1
        return torch.zeros(1)

    holder = nn.ModuleDict({"here": point})
    point(recipe)
    assert calls == 0
    with look(holder) as one, look(holder, "here") as two:
        point(recipe)
    point(recipe)
    assert calls == 1
    assert len(one["here"]) == len(two["here"]) == 1
    assert list(points(holder)) == ["here"]
    with (
        pytest.raises(InputError, match="no point of this model is called hear; did you mean here?"),
        look(holder, "hear"),
    ):
        pass


def test_tokens_are_checked() -> None:
    embeddings = TokenEmbeddings(embedding(5, 8), 1.0, None, None, 0.0)
    with pytest.raises(InputError, match=r"must be integer ids of shape \[rows, tokens\], got torch.float32"):
        embeddings(torch.zeros(1, 2), WHERE)
    with pytest.raises(InputError, match="got torch.int64 of shape"):
        embeddings(torch.zeros(2, dtype=torch.long), WHERE)
    with pytest.raises(InputError, match="ids from 0 to 7 were given, but the vocabulary has 5"):
        embeddings(torch.tensor([[0, 7]]), WHERE)
    with pytest.raises(InputError, match="ids from -1 to 0"):
        embeddings(torch.tensor([[0, -1]]), WHERE)
