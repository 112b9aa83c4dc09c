"""heed.MultiheadAttention beside torch's: outputs, weights, gradients, errors; and inside torch's layers."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import heed
from heed.check import check
from heed.core.errors import ConfigError, HeedError, InputError
from heed.mixers import Attention
from heed.parts.masks import Causal, Mask, Window
from heed.parts.positions import RELATIVE, Alibi, NoPosition, Relative, RelativeConfig, Rope

EMBED, HEADS, ROWS, TOKENS, KEYS = 12, 4, 2, 5, 7
# Both sum the same few dozen products, in another order: a few units in the last place of numbers below 4.
BOUND = {torch.float64: 1e-14, torch.float32: 4e-6}

OPTIONS: dict[str, list[Any]] = {
    "bias": [True, False],
    "add_bias_kv": [False, True],
    "add_zero_attn": [False, True],
    "kdim": [None, 10],
}


def grid(choices: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    for chosen in product(*choices.values()):
        yield dict(zip(choices, chosen, strict=True))


def pair(dtype: torch.dtype = torch.float64, **options: Any) -> tuple[nn.MultiheadAttention, heed.MultiheadAttention]:
    """Torch's and heed's, from the same seed, with biases that are not zero."""
    made = []
    for kind in (nn.MultiheadAttention, heed.MultiheadAttention):
        torch.manual_seed(1)
        made.append(kind(EMBED, HEADS, dtype=dtype, **options))
        with torch.no_grad():
            for name, parameter in made[-1].named_parameters():
                if "bias" in name:
                    parameter.normal_()
    theirs, ours = made
    assert isinstance(ours, heed.MultiheadAttention)
    return theirs, ours


def masks(dtype: torch.dtype) -> tuple[list[Tensor | None], list[Tensor | None]]:
    """Key padding masks and attention masks; none hides everything from a query."""
    draw = torch.Generator().manual_seed(3)
    padding = torch.zeros(ROWS, KEYS, dtype=torch.bool)
    padding[0, 5:] = padding[1, 1] = True
    pairs = torch.rand(TOKENS, KEYS, generator=draw) < 0.4
    by_head = torch.rand(ROWS * HEADS, TOKENS, KEYS, generator=draw) < 0.4
    pairs[:, 0] = by_head[..., 0] = False
    added = torch.randn(TOKENS, KEYS, generator=draw, dtype=dtype)
    each = torch.randn(ROWS * HEADS, TOKENS, KEYS, generator=draw, dtype=dtype).masked_fill(by_head, float("-inf"))
    weighed = torch.randn(ROWS, KEYS, generator=draw, dtype=dtype)
    return [None, padding, weighed], [None, pairs, by_head, added, each]


def compare(theirs: nn.Module, ours: nn.Module, inputs: tuple[Tensor, ...], **call: Any) -> None:
    """Outputs, weights, and the gradients of inputs and parameters."""
    found = []
    for module in (theirs, ours):
        given = tuple(x.detach().clone().requires_grad_() for x in inputs)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Support for mismatched")  # torch's, of masks of two dtypes
            y, weight = module(*given, **call)
        loss = (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)).sum()
        loss = loss if weight is None else loss + weight.square().sum()
        gradients = torch.autograd.grad(loss, (*given, *module.parameters()), allow_unused=True)
        found.append((y, weight, *gradients))
    for one, other in zip(*found, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert one.shape == other.shape
            assert one.dtype == other.dtype
            apart = float((one - other).detach().abs().max() / one.detach().abs().max().clamp(min=1))
            assert apart <= BOUND[one.dtype], (apart, call)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("batch_first", [True, False])
def test_it_equals_torchs_over_all_options_and_masks(dtype: torch.dtype, batch_first: bool) -> None:
    """Every option with every mask, in training and in eval mode in turn."""
    shapes = ((ROWS, TOKENS), (ROWS, KEYS), (ROWS, KEYS))
    paddings, pairs = masks(dtype)
    asked = ({"need_weights": False}, {"need_weights": True}, {"need_weights": True, "average_attn_weights": False})
    for index, options in enumerate(grid(OPTIONS)):
        theirs, ours = pair(dtype, batch_first=batch_first, vdim=None if options["kdim"] is None else 9, **options)
        sizes = (EMBED, theirs.kdim, theirs.vdim)
        inputs = [torch.randn(*shape, size, dtype=dtype) for shape, size in zip(shapes, sizes, strict=True)]
        inputs = inputs if batch_first else [x.transpose(0, 1) for x in inputs]
        for padding, attn, said in product(paddings, pairs, asked):
            training = bool(index % 2)
            theirs.train(training)
            ours.train(training)
            compare(theirs, ours, tuple(inputs), key_padding_mask=padding, attn_mask=attn, **said)


def test_it_equals_torchs_fused_path_without_gradients() -> None:
    theirs, ours = (module.eval() for module in pair(torch.float32, batch_first=True))
    x = torch.randn(ROWS, TOKENS, EMBED)
    causal, padding = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1), torch.arange(TOKENS).expand(ROWS, -1) > 3
    with torch.no_grad():
        for hidden, mask, need in product((None, padding), (None, causal), (True, False)):
            one, other = (module(x, x, x, hidden, need, mask) for module in (theirs, ours))
            assert torch.allclose(one[0], other[0], atol=BOUND[torch.float32], rtol=0)
            assert one[1] is None or torch.allclose(one[1], other[1], atol=BOUND[torch.float32], rtol=0)


class OneInput(nn.Module):
    """Self-attention: query, key and value are one tensor, which torch and heed multiply once."""

    def __init__(self, attention: nn.MultiheadAttention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: Tensor, **call: Any) -> tuple[Tensor, Tensor | None]:
        y, weight = self.attention(x, x, x, **call)
        return y, weight


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("is_causal", [False, True])
def test_self_attention_with_and_without_rows(dtype: torch.dtype, need_weights: bool, is_causal: bool) -> None:
    theirs, ours = pair(dtype)
    x = torch.randn(TOKENS, EMBED, dtype=dtype)
    causal = nn.Transformer.generate_square_subsequent_mask(TOKENS, dtype=dtype)
    padding = torch.arange(TOKENS) > 3
    for mask, hidden in product((causal, causal.isneginf()), (None, padding)):
        call = {"attn_mask": mask, "need_weights": need_weights, "is_causal": is_causal}
        compare(OneInput(theirs), OneInput(ours), (x,), key_padding_mask=hidden, **call)
        rows = None if hidden is None else hidden.expand(3, -1)
        compare(OneInput(theirs), OneInput(ours), (torch.stack([x] * 3, 1),), key_padding_mask=rows, **call)
    by_head = (torch.rand(HEADS, TOKENS, TOKENS) < 0.3) & ~torch.eye(TOKENS, dtype=torch.bool)
    compare(OneInput(theirs), OneInput(ours), (x,), attn_mask=by_head, need_weights=need_weights)


def test_weights_go_both_ways_and_begin_alike() -> None:
    for options in grid(OPTIONS):
        torch.manual_seed(0)
        theirs = nn.MultiheadAttention(EMBED, HEADS, **options)
        after = torch.rand(1)
        torch.manual_seed(0)
        ours = heed.MultiheadAttention(EMBED, HEADS, **options)
        assert torch.equal(torch.rand(1), after)  # as many random numbers were drawn
        one, other = theirs.state_dict(), ours.state_dict()
        assert list(one) == list(other)
        assert all(torch.equal(one[name], other[name]) for name in one)
        theirs.load_state_dict(other)
        ours.load_state_dict(one)
        again = copy.deepcopy(ours)
        assert all(torch.equal(value, one[name]) for name, value in again.state_dict().items())


def test_dropout_drops_in_training_alone() -> None:
    attention = heed.MultiheadAttention(EMBED, HEADS, dropout=0.5, batch_first=True)
    x = torch.randn(ROWS, 40, EMBED)
    for need in (True, False):
        assert not torch.equal(attention(x, x, x, need_weights=need)[0], attention(x, x, x, need_weights=need)[0])
    share = (attention(x, x, x, average_attn_weights=False)[1] == 0).double().mean()
    assert abs(share - 0.5) < 0.02
    attention.eval()
    assert torch.equal(attention(x, x, x)[0], attention(x, x, x)[0])


def test_a_query_that_sees_nothing_gets_zeros_and_no_nan() -> None:
    _, ours = pair()
    x = torch.randn(TOKENS, EMBED, dtype=torch.float64, requires_grad=True)
    mask = torch.zeros(TOKENS, TOKENS, dtype=torch.bool)
    mask[2] = True
    for hidden in (mask, torch.zeros(TOKENS, TOKENS).masked_fill(mask, float("-inf"))):
        for need in (True, False):
            y, _ = ours(x, x, x, attn_mask=hidden, need_weights=need)
            assert torch.allclose(y[2], ours.out_proj.bias)
            (gradient,) = torch.autograd.grad(y.sum(), x)
            assert bool(gradient.isfinite().all())


X3, X2 = torch.zeros(TOKENS, ROWS, EMBED), torch.zeros(TOKENS, EMBED)
WRONG: dict[str, tuple[tuple[Tensor, ...], dict[str, Any], str]] = {
    "four axes": ((X3[None],) * 3, {}, r"needed are \[tokens, rows, size\]"),
    "rows of some": ((X3, X2, X2), {}, "needed are"),
    "size": ((X3[..., :8],) * 3, {}, r"takes sizes \(12, 12, 12\)"),
    "rows": ((X3, X3[:, :1], X3[:, :1]), {}, "rows stand second unless"),
    "values": ((X3, X3, X3[:3]), {}, "keys as many as values"),
    "padding": ((X3,) * 3, {"key_padding_mask": torch.zeros(TOKENS, ROWS, dtype=torch.bool)}, r"needed is \(2, 5\)"),
    "padding of a row": ((X2,) * 3, {"key_padding_mask": torch.zeros(1, TOKENS, dtype=torch.bool)}, r"is \(5,\)"),
    "integers": ((X3,) * 3, {"key_padding_mask": torch.ones(ROWS, TOKENS, dtype=torch.long)}, "write mask == 0"),
    "mask": ((X3,) * 3, {"attn_mask": torch.zeros(TOKENS, 3)}, r"needed is \(5, 5\) or \(8, 5, 5\)"),
    "mask of heads": ((X3,) * 3, {"attn_mask": torch.zeros(HEADS, TOKENS, TOKENS)}, "needed is"),
    "mask of four axes": ((X3,) * 3, {"attn_mask": torch.zeros(ROWS, HEADS, TOKENS, TOKENS)}, "needed is"),
    "integer mask": ((X3,) * 3, {"attn_mask": torch.ones(TOKENS, TOKENS, dtype=torch.long)}, "attn_mask must be"),
}


@pytest.mark.parametrize("case", WRONG)
def test_where_torch_raises_heed_teaches(case: str) -> None:
    inputs, call, message = WRONG[case]
    theirs, ours = pair(torch.float32)
    with pytest.raises((AssertionError, RuntimeError)):
        theirs(*inputs, **call)
    with pytest.raises(InputError, match=message):
        ours(*inputs, **call)


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ((12, 5), {}, "does not divide into 5 heads"),
        ((0, 4), {}, "1 or more"),
        ((12, 4), {"kv_heads": 3}, "use a divisor of 4"),
        ((12, 4), {"mask": torch.ones(2, 2)}, "a tensor goes to attn_mask="),
        ((12, 4), {"mask": "causal"}, r"write Causal\(\)"),
        ((12, 4), {"position": Rope}, r"one of Rope\.Config"),
        ((12, 4), {"position": Alibi.Config(), "add_zero_attn": True}, "stand nowhere"),
        ((12, 4), {"position": Relative.Config(), "scale": 0.5}, "leave scale unset"),
    ],
)
def test_what_cannot_be_is_refused(given: tuple[int, int], options: dict[str, Any], message: str) -> None:
    with pytest.raises(HeedError, match=message) as caught:
        heed.MultiheadAttention(*given, **options)
    assert isinstance(caught.value, ConfigError | InputError)


def test_is_causal_needs_no_mask_beside_it() -> None:
    _, ours = pair(batch_first=True)
    x = torch.randn(ROWS, TOKENS, EMBED, dtype=torch.float64)
    triangle = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
    padding = torch.arange(TOKENS).expand(ROWS, -1) > 3
    for need, hidden in product((True, False), (None, padding)):
        said, _ = ours(x, x, x, hidden, need, triangle)
        meant, _ = ours(x, x, x, hidden, need, is_causal=True)
        assert torch.allclose(said, meant, atol=1e-13, rtol=0)
    with pytest.raises(InputError, match="has two meanings"):
        ours(x[:, :2], x, x, is_causal=True)


def test_the_causal_hint_beside_an_added_key_is_what_the_mask_says() -> None:
    """Torch hides the added key when it takes the hint for the mask; with weights, it does not. heed never does."""
    theirs, ours = pair(add_bias_kv=True)
    x, triangle = torch.randn(TOKENS, EMBED, dtype=torch.float64), torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
    wanted, _ = theirs(x, x, x, attn_mask=triangle, is_causal=True)
    for need in (True, False):
        made, _ = ours(x, x, x, attn_mask=triangle, is_causal=True, need_weights=need)
        assert torch.allclose(made, wanted, atol=1e-13, rtol=0)
    hidden, _ = theirs(x, x, x, attn_mask=triangle, is_causal=True, need_weights=False)
    assert not torch.allclose(hidden, wanted, atol=1e-3)


def as_mixer(ours: heed.MultiheadAttention, mask: Mask, position: RelativeConfig) -> Attention:
    """The mixer with the same weights."""
    config = Attention.Config(heads=HEADS, kv_heads=ours.kv_heads, mask=mask, position=position, scale=ours.scale)
    mixer = config.model_copy(update={"cap": ours.cap}).build(24).double()
    shared = ours.kv_heads * ours.head_dim
    assert ours.in_proj_weight is not None
    weights = zip(
        ours.in_proj_weight.split([24, shared, shared]), ours.in_proj_bias.split([24, shared, shared]), strict=True
    )
    with torch.no_grad():
        for layer, (weight, bias) in zip((mixer.query, mixer.key, mixer.value), weights, strict=True):
            layer.weight.copy_(weight)
            layer.bias.copy_(bias)
    mixer.out.load_state_dict(ours.out_proj.state_dict())
    mixer.position.load_state_dict(ours.position.state_dict())
    return mixer


@pytest.mark.parametrize("code", [code for kind in RELATIVE for code in kind.samples()], ids=repr)
@pytest.mark.parametrize(("kv_heads", "mask"), [(None, Causal()), (2, Window(back=2)), (1, Window(back=1, ahead=2))])
def test_heeds_options_are_those_of_heeds_attention(code: RelativeConfig, kv_heads: int | None, mask: Mask) -> None:
    torch.manual_seed(0)
    chosen: dict[str, Any] = {"position": code, "kv_heads": kv_heads, "mask": mask, "batch_first": True}
    ours = heed.MultiheadAttention(24, HEADS, dtype=torch.float64, cap=0.7, **chosen).eval()
    mixer, x = as_mixer(ours, mask, code).eval(), torch.randn(ROWS, 9, 24, dtype=torch.float64)
    with torch.no_grad():
        wanted, _ = mixer(x)
        nothing = torch.zeros(ROWS, 9, dtype=torch.bool)
        for call in ({}, {"need_weights": False}, {"key_padding_mask": nothing}, {"attn_mask": torch.zeros(9, 9)}):
            made, _ = ours(x, x, x, **call)
            assert torch.allclose(made, wanted, atol=1e-12, rtol=0)


def test_queries_are_the_last_tokens() -> None:
    torch.manual_seed(0)
    ours = heed.MultiheadAttention(EMBED, HEADS, mask=Causal(), position=Alibi.Config(), batch_first=True).eval()
    x = torch.randn(ROWS, KEYS, EMBED)
    whole, _ = ours(x, x, x)
    last, _ = ours(x[:, -2:], x, x)
    assert torch.allclose(last, whole[:, -2:], atol=1e-6)
    with pytest.raises(InputError, match="7 queries cannot be the last of 2 keys"):
        ours(x, x[:, :2], x[:, :2])


@pytest.mark.parametrize("mask", [None, Causal()])
@pytest.mark.parametrize("kdim", [None, 10])
def test_extra_keys_stand_beside_masks_and_shared_heads(mask: Mask | None, kdim: int | None) -> None:
    """With `need_weights` or without: one result, with weights that sum to one over all keys, extra ones included."""
    extra = 2
    options: dict[str, Any] = {"batch_first": True, "add_bias_kv": True, "add_zero_attn": True}
    ours = heed.MultiheadAttention(EMBED, 2, kdim=kdim, kv_heads=1, mask=mask, **options)
    query, value = torch.randn(ROWS, TOKENS, EMBED), torch.randn(ROWS, TOKENS, EMBED)
    key = query if kdim is None else torch.randn(ROWS, TOKENS, kdim)
    plain, _ = ours(query, key, value, need_weights=False)
    shown, weight = ours(query, key, value)
    assert torch.allclose(plain, shown, atol=1e-5)
    assert weight is not None
    assert weight.shape == (ROWS, TOKENS, TOKENS + extra)
    assert torch.allclose(weight.sum(-1), torch.ones(ROWS, TOKENS))


LAYER: dict[str, Any] = {"dim_feedforward": 16, "dropout": 0.0, "batch_first": True, "dtype": torch.float64}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("grad", [True, False])
def test_it_stands_in_torchs_encoder_layer(training: bool, grad: bool) -> None:
    torch.manual_seed(0)
    theirs = nn.TransformerEncoderLayer(EMBED, HEADS, **LAYER).train(training)
    ours = copy.deepcopy(theirs)
    ours.self_attn = heed.MultiheadAttention(EMBED, HEADS, batch_first=True, dtype=torch.float64).train(training)
    ours.load_state_dict(theirs.state_dict())
    x, causal = (
        torch.randn(ROWS, TOKENS, EMBED, dtype=torch.float64),
        nn.Transformer.generate_square_subsequent_mask(TOKENS),
    )
    padding = torch.arange(TOKENS).expand(ROWS, -1) > 3
    stacks = [nn.TransformerEncoder(layer, 2).train(training) for layer in (theirs, ours)]
    with torch.set_grad_enabled(grad):
        for call in ({}, {"src_mask": causal.double(), "is_causal": True}, {"src_key_padding_mask": padding}):
            assert torch.allclose(theirs(x, **call), ours(x, **call), atol=1e-12, rtol=0)
        assert torch.allclose(stacks[0](x), stacks[1](x), atol=1e-12, rtol=0)


@pytest.mark.parametrize("options", [{"mask": Causal()}, {"kv_heads": 2}, {"position": Rope.Config()}], ids=repr)
def test_torchs_fused_layer_does_not_go_around_heeds_options(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(EMBED, 2, **LAYER)
    layer.self_attn = heed.MultiheadAttention(EMBED, 2, batch_first=True, dtype=torch.float64, **(options))
    x = torch.randn(ROWS, TOKENS, EMBED, dtype=torch.float64)
    trained = layer(x)
    with torch.no_grad():
        assert torch.allclose(layer.eval()(x), trained, atol=1e-12, rtol=0)


def test_its_weights_can_be_looked_at_even_where_torch_would_go_around_it() -> None:
    layer = nn.TransformerEncoderLayer(EMBED, HEADS, **LAYER).eval()
    layer.self_attn = heed.MultiheadAttention(EMBED, HEADS, batch_first=True, dtype=torch.float64).eval()
    x = torch.randn(ROWS, TOKENS, EMBED, dtype=torch.float64)
    with torch.no_grad(), heed.look(layer) as seen:
        layer(x)
    (weights,) = seen["self_attn.weights"]
    assert weights.shape == (ROWS, HEADS, TOKENS, TOKENS)


def test_it_says_what_it_is() -> None:
    text = repr(heed.MultiheadAttention(64, 8, kv_heads=2, mask=Window(back=15), position=Rope.Config()))
    assert "embed_dim=64, num_heads=8, batch_first=False, kv_heads=2, mask=Window(back=15)" in text
    assert "Rope" in text
    assert NoPosition.__name__ in repr(heed.MultiheadAttention(64, 8))


@pytest.mark.parametrize(
    "options",
    [{}, {"mask": Causal()}, {"kv_heads": 2}, {"mask": Causal(), "position": Rope.Config(), "kv_heads": 1}],
    ids=repr,
)
def test_heed_check_finds_nothing_wrong_with_it(options: dict[str, Any]) -> None:
    target = heed.MultiheadAttention(24, HEADS, batch_first=True, **options) if options else "heed:MultiheadAttention"
    report = check(target)
    assert report.ok, str(report)
    assert not [outcome for outcome in report.outcomes if outcome.status == "fail"], str(report)
