"""What public packages do that nobody told heed of: norms by hand, weights kept aside, windows, choices, calls."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heed.check import check
from heed.check.foreign.guess.arguments import Guesser
from heed.check.foreign.sizes import Sizes
from heed.check.foreign.ways.hints import resized
from heed.check.foreign.words import Role, role_of


class Heads(nn.Module):
    """What the following ones share: projections, and heads that are cut and merged."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim)

    def cut(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))

    def merged(self, y: Tensor) -> Tensor:
        made: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return made


class UnitRms(nn.Module):
    """Vectors of length one, times the root of their size."""

    def __init__(self, dim: int, root: float | None = None) -> None:
        super().__init__()
        self.root = dim**0.5 if root is None else root
        self.gain = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=-1) * self.root * self.gain


class NormedByHand(Heads):
    """Queries and keys are normed by hand; then the usual scale."""

    times = 1.0

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.q_norm, self.k_norm = UnitRms(dim // heads), UnitRms(dim // heads)
        self.scale = (dim // heads) ** -0.5 * self.times

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.cut(x)
        return self.merged((self.q_norm(q) @ self.k_norm(k).mT * self.scale).softmax(-1) @ v)


class NormedTimesAll(NormedByHand):
    """The same, scaled the wrong way round: by the root of a head's size instead of one over it."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.scale = (dim // heads) ** 0.5


def test_a_norm_by_hand_is_no_scale() -> None:
    assert check(NormedByHand).ok
    assert check(NormedTimesAll).slugs == ["wrong-scale"]


class MayLookElsewhere(Heads):
    """Whether it looks at a context is said by the size of one; without that, none is used."""

    def __init__(self, dim: int, heads: int, dim_context: int | None = None) -> None:
        super().__init__(dim, heads)
        self.looks = dim_context is not None
        self.kv = nn.Linear(dim_context or dim, 2 * dim)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        seen = x
        if self.looks:
            assert context is not None
            seen = context
        q = self.cut(x)[0]
        k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.kv(seen).chunk(2, -1))
        return self.merged(F.scaled_dot_product_attention(q, k, v))


class MayBeTold(Heads):
    """It is moved by what else it is told, if the size of that is known."""

    def __init__(self, dim: int, heads: int, text_cond_dim: int | None = None) -> None:
        super().__init__(dim, heads)
        self.told = None if text_cond_dim is None else nn.Linear(text_cond_dim, dim)

    def forward(self, x: Tensor, text_cond: Tensor | None = None) -> Tensor:
        if self.told is not None and text_cond is not None:
            x = x + self.told(text_cond).mean(1, keepdim=True)
        q, k, v = self.cut(x)
        return self.merged(F.scaled_dot_product_attention(q, k, v))


def test_a_source_that_the_constructor_leaves_out_is_none() -> None:
    assert "shared-self-cross" not in check(MayLookElsewhere).slugs
    assert check(MayBeTold).ok


class KeptBias(Heads):
    """A learnt bias is indexed once, and kept for use; while training it is indexed anew."""

    index: Tensor

    def __init__(self, dim: int, heads: int, resolution: int) -> None:
        super().__init__(dim, heads)
        many = resolution**2
        self.register_buffer("index", (torch.arange(many)[:, None] - torch.arange(many)[None]).abs())
        self.bias = nn.Parameter(torch.randn(heads, many))
        self.kept: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            bias = self.bias[:, self.index]
        else:
            self.kept = self.bias.detach()[:, self.index] if self.kept is None else self.kept
            bias = self.kept
        q, k, v = self.cut(x)
        return self.merged(((q @ k.mT) * q.shape[-1] ** -0.5 + bias).softmax(-1) @ v)


class OneOfThem(nn.Module):
    """A search space: of several mixers one is chosen by its name."""

    def __init__(self, dim: int, heads: int, kind: str = "whole") -> None:
        super().__init__()
        self.kind = kind
        self.choices = nn.ModuleDict({"whole": NormedByHand(dim, heads), "none": nn.Linear(dim, dim)})

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.choices[self.kind](x)
        return y


class Forgets(Heads):
    """A layer that is made, and never used."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.value = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.cut(x)
        return self.merged(F.scaled_dot_product_attention(q, k, v))


def test_weights_that_are_used_elsewhere_are_used() -> None:
    assert check(KeptBias).ok
    assert check(OneOfThem).ok
    assert check(Forgets).slugs == ["parameter-unused"]


class WindowsThenAll(nn.Module):
    """Windows of an image, and then one vector for each window, if there are several."""

    def __init__(self, dim: int, window_size: int = 3) -> None:
        super().__init__()
        self.side = window_size
        self.qkv, self.of_windows = nn.Conv2d(dim, 3 * dim, 1, bias=False), nn.Linear(dim, 2 * dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        rows, dim, height, wide = x.shape
        assert height % self.side == 0
        assert wide % self.side == 0, "whole windows only"
        high, broad = height // self.side, wide // self.side
        parts = self.qkv(x).reshape(rows, 3, dim, high, self.side, broad, self.side)
        q, k, v = parts.permute(1, 0, 3, 5, 4, 6, 2).reshape(3, rows, high * broad, self.side**2, dim)
        y: Tensor = (q @ k.mT * dim**-0.5).softmax(-1) @ v
        if high * broad > 1:
            one, other = self.of_windows(y.mean(2)).chunk(2, -1)
            y = ((one @ other.mT * dim**-0.5).softmax(-1) @ y.flatten(2)).view_as(y)
        y = y.reshape(rows, high, broad, self.side, self.side, dim).permute(0, 5, 1, 3, 2, 4)
        return y.reshape(rows, dim, height, wide)


def test_one_window_is_not_all_images() -> None:
    assert check(WindowsThenAll).ok


class StridedKeys(nn.Module):
    """An image whose keys are every other place of it: the places between are seen by nobody, and are not later."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.thin = nn.Conv2d(dim, dim, 2, stride=4)
        self.back = nn.Upsample(scale_factor=4)

    def forward(self, x: Tensor) -> Tensor:
        few = self.thin(x)
        y: Tensor = self.back(few + F.scaled_dot_product_attention(few, few, few))
        return y


def test_an_image_has_no_later_tokens() -> None:
    assert check(StridedKeys).ok


class DropsLayers(nn.Module):
    """Layers are left out by chance, also in use: the chance is Python's own."""

    def __init__(self, dim: int, heads: int, depth: int, layer_dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList([NormedByHand(dim, heads) for _ in range(depth)])
        self.share = layer_dropout

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            if random.random() >= self.share:
                x = x + layer(x)
        return x


def test_what_python_draws_is_drawn_by_a_seed() -> None:
    assert check(DropsLayers).slugs == ["dropout-in-eval"]


class ZeroesPadding(Heads):
    """What is hidden is set to zero where it lies, which is the caller's tensor."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is not None:
            x[~mask] = 0
            mask = mask[:, None, None]
        q, k, v = self.cut(x)
        return self.merged(F.scaled_dot_product_attention(q, k, v, mask))


def test_a_stream_that_is_written_to_where_a_mask_hides_it() -> None:
    report = check(ZeroesPadding)
    assert report.slugs == ["input-mutated"]
    assert "where mask hides it" in report.likely[0].evidence[0]


class Samples(Heads):
    """Of all tokens but the first, two are drawn, by how much the first looks at them."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.cut(x)
        y = self.merged(F.scaled_dot_product_attention(q, k, v))
        likely = (y[:, 1:] * y[:, :1]).sum(-1).softmax(-1)
        noise = -torch.empty_like(likely).exponential_().log()
        drawn = (likely.log() + noise).argmax(-1, keepdim=True) + 1
        return torch.cat([y[:, :1], y.gather(1, drawn[..., None].expand(-1, -1, y.shape[2]))], 1)


def test_what_draws_is_not_taken_for_causal() -> None:
    assert not {"mask-inverted", "future-leak"} & set(check(Samples).slugs)


def eager(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float, dropout: float
) -> Tensor:
    """What it is told to scale by and to drop is no stream, nor is the module for which it is called."""
    groups = module.num_key_value_groups
    assert isinstance(groups, int)
    score = query @ key.repeat_interleave(groups, 1).transpose(2, 3) * scaling
    score = score if mask is None else score + mask
    return F.dropout(score.softmax(-1), dropout, module.training) @ value.repeat_interleave(groups, 1)


def eager_and_turned(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float
) -> tuple[Tensor, Tensor]:
    """The same with tokens before heads in what comes out, and the weights beside it, as transformers has it."""
    score = query @ key.transpose(2, 3) * scaling
    weights = (score if mask is None else score + mask).softmax(-1)
    return (weights @ value).transpose(1, 2).contiguous(), weights


def test_numbers_beside_the_streams() -> None:
    assert check(eager).ok
    assert check(eager_and_turned).ok
    assert role_of("mask_fn") is role_of("score_mod") is Role.OTHER
    assert role_of("feat_size") is Role.SHAPE


def told_none(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None) -> Tensor:
    """A scale that may be left out by its signature, though not by its code."""
    return (q @ k.mT * scale).softmax(-1) @ v  # type: ignore[operator]


def told_by_a_function(q: Tensor, k: Tensor, v: Tensor, mask_fn: Callable[..., Tensor] | None = None) -> Tensor:
    """Who is seen is told by a function."""
    score = q @ k.mT * q.shape[-1] ** -0.5
    if mask_fn is not None:
        score = score.masked_fill(~mask_fn(*score.shape[-2:]), -torch.inf)
    return score.softmax(-1) @ v


def test_a_function_is_no_mask() -> None:
    assert check(told_by_a_function).ok


def test_a_scale_that_is_left_out_and_missed_is_given() -> None:
    assert check(told_none).ok


class Modulated(Heads):
    """Its norm is moved by a vector of each row, as blocks of image models are by the step of time."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.norm, self.moves = nn.LayerNorm(dim, elementwise_affine=False), nn.Linear(dim, 2 * dim)

    def forward(self, x: Tensor, temb: Tensor) -> Tensor:
        times, plus = self.moves(F.silu(temb))[:, None].chunk(2, -1)
        q, k, v = self.cut(self.norm(x) * (1 + times) + plus)
        return x + self.merged(F.scaled_dot_product_attention(q, k, v))


class Packed(Heads):
    """Texts side by side in one stream, with the places where they begin and end."""

    def forward(self, hidden_states: Tensor, cu_seqlens: Tensor) -> Tensor:
        parts = list(zip(cu_seqlens[:-1].tolist(), cu_seqlens[1:].tolist(), strict=True))
        streams = [self.cut(hidden_states[None, start:end]) for start, end in parts]
        y = torch.cat([self.merged(F.scaled_dot_product_attention(q, k, v))[0] for q, k, v in streams])
        assert len(y) == len(hidden_states)
        return y


def test_what_blocks_of_image_models_take() -> None:
    assert check(Modulated).ok
    report = check(Packed)
    assert report.ok
    assert "[tokens, width]" in " ".join(report.notes)


class PlainProcessor:
    """What an attention hands itself to."""

    def __call__(self, attn: Processed, x: Tensor) -> Tensor:
        q, k, v = attn.cut(x)
        return attn.merged(F.scaled_dot_product_attention(q, k, v))


class Processed(Heads):
    """An attention that does nothing without a processor, though it may be left out."""

    def __init__(self, dim: int, heads: int, processor: PlainProcessor | None = None) -> None:
        super().__init__(dim, heads)
        self.processor = processor

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.processor(self, x)  # type: ignore[misc]
        return y


def test_a_processor_is_found_beside() -> None:
    assert "PlainProcessor" in " ".join(check(Processed).notes)


class TakesApart:
    """A size that is a pair, though its name does not say so."""

    def __init__(self, channel: int, patch_size) -> None:  # type: ignore[no-untyped-def]
        self.channel = channel
        self.high, self.wide = patch_size


def test_what_is_taken_apart_is_a_pair() -> None:
    guesser = Guesser(TakesApart, Sizes(), lambda kind: kind())
    assert guesser.guesses(guesser.parameters["patch_size"])[0] == (1, 1)


@pytest.mark.parametrize(
    ("pattern", "shape", "info", "tokens"),
    [
        ("b (h w) d -> b h w d", "3, 7, 24", "{'h': 4, 'w': 3}", 12),
        ("b (n w) d -> b n w d", "3, 7, 24", "{'w': 3}", 6),
        ("b c (x p1) (y p2) -> (b x y) c p1 p2", "3, 24, 4, 4", "{'p1': 7, 'p2': 7}", 196),
    ],
)
def test_lengths_of_a_pattern(pattern: str, shape: str, info: str, tokens: int) -> None:
    told = (
        f'Error while processing rearrange-reduction pattern "{pattern}".\n Input tensor shape: torch.Size([{shape}])'
    )
    error = RuntimeError(f"{told}. Additional info: {info}.\n Shape mismatch, can't divide axis")
    assert tokens in [sizes.tokens for sizes in resized(error, Sizes())]
