"""Ways of writing met in strangers' repositories, in small: each was falsely accused, or not run, at first sight."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from heed.check import check
from heed.check.reports.report import Verdict


class WideHeads(nn.Module):
    """Every head is as wide as it is told; True in the mask, which must be given, hides."""

    def __init__(self, emb_size: int, q_k_size: int, v_size: int, head: int, hidden: float) -> None:
        super().__init__()
        self.head, self.hidden = head, hidden
        self.w_q, self.w_k = nn.Linear(emb_size, head * q_k_size), nn.Linear(emb_size, head * q_k_size)
        self.w_v = nn.Linear(emb_size, head * v_size)

    def forward(self, x_q: Tensor, x_k_v: Tensor, attn_mask: Tensor) -> Tensor:
        q, k, v = self.w_q(x_q), self.w_k(x_k_v), self.w_v(x_k_v)
        q, k, v = (t.view(*t.shape[:2], self.head, -1).transpose(1, 2) for t in (q, k, v))
        scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(attn_mask.unsqueeze(1), self.hidden)
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


class TwoMasks(nn.Module):
    """A decoder's block: the first mask is as long as what asks, the second as what is looked at."""

    def __init__(self, emb_size: int, q_k_size: int, v_size: int, f_size: int, head: int) -> None:
        super().__init__()
        self.first = WideHeads(emb_size, q_k_size, v_size, head, -1e9)
        self.second = WideHeads(emb_size, q_k_size, v_size, head, -1e9)
        self.one, self.two = nn.Linear(head * v_size, emb_size), nn.Linear(head * v_size, emb_size)
        self.norm, self.feed = nn.LayerNorm(emb_size), nn.Linear(emb_size, f_size)

    def forward(self, x: Tensor, encoder_z: Tensor, first_attn_mask: Tensor, second_attn_mask: Tensor) -> Tensor:
        x = self.norm(x + self.one(self.first(x, x, first_attn_mask)))
        x = self.norm(x + self.two(self.second(x, encoder_z, second_attn_mask)))
        return x + self.feed(x)


def test_masks_of_two_lengths_that_must_be_given_hide_nothing() -> None:
    report = check(TwoMasks)
    assert report.ok, report.slugs
    assert "a stream and a source" in report.call


class TimeMajor(nn.Module):
    """Tokens first; what is hidden is minus infinity, so that a mask of nothing but True leaves no number."""

    def __init__(self, model_dim: int, num_heads: int) -> None:
        super().__init__()
        self.heads, self.size = num_heads, model_dim // num_heads
        self.fc_q, self.fc_k, self.fc_v, self.fc_o = (nn.Linear(model_dim, model_dim) for _ in range(4))

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        batch = query.size(1)
        three = ((self.fc_q, query), (self.fc_k, key), (self.fc_v, value))
        q, k, v = (fc(x).view(-1, batch, self.heads, self.size).transpose(0, 2) for fc, x in three)
        scores = q @ k.mT / math.sqrt(self.size)
        if mask is not None:
            scores = scores.masked_fill(mask, float("-inf"))
        made: Tensor = self.fc_o((scores.softmax(-1) @ v).transpose(0, 2).reshape(-1, batch, self.heads * self.size))
        return made


class TimeMajorDecoder(nn.Module):
    def __init__(self, model_dim: int, num_heads: int) -> None:
        super().__init__()
        self.self_attn, self.enc_attn = TimeMajor(model_dim, num_heads), TimeMajor(model_dim, num_heads)

    def forward(self, x: Tensor, encoder_outputs: Tensor, src_mask: Tensor, tgt_mask: Tensor) -> Tensor:
        x = x + self.self_attn(x, x, x, tgt_mask)
        y: Tensor = x + self.enc_attn(x, encoder_outputs, encoder_outputs, src_mask)
        return y


def test_a_query_at_a_time_is_not_what_is_meant_where_rows_would_touch() -> None:
    report = check(TimeMajorDecoder)
    assert report.ok, report.slugs
    assert any("[tokens, rows, width]" in note for note in report.notes)


class OneQuery(nn.Module):
    """A single query for each row, beside keys and values of many tokens."""

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature, self.softmax = temperature, nn.Softmax(dim=2)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        attn = self.softmax(torch.matmul(q.unsqueeze(1), k.transpose(1, 2)) / self.temperature)
        return torch.matmul(attn, v), attn


def test_one_query_of_each_row() -> None:
    report = check(OneQuery)
    assert report.ok, report.slugs
    assert any("one query" in note for note in report.notes)


class MeanQuery(nn.Module):
    """One vector for each row; heads stand before rows, and each sums whole tokens, which know their places."""

    turned = True

    def __init__(self, in_channels: int = 24, n_head: int = 4, d_k: int = 8) -> None:
        super().__init__()
        self.n_head, self.d_k = n_head, d_k
        self.places = nn.Embedding(100, in_channels)
        self.fc_q, self.fc_k = nn.Linear(in_channels, n_head * d_k), nn.Linear(in_channels, n_head * d_k)
        self.mlp = nn.Linear(n_head * in_channels, in_channels)

    def forward(self, x: Tensor) -> Tensor:
        rows, tokens, width = x.shape
        x = x + self.places(torch.arange(tokens))
        q = self.fc_q(x).view(rows, tokens, self.n_head, self.d_k).mean(1).permute(1, 0, 2).reshape(-1, 1, self.d_k)
        k = self.fc_k(x).view(rows, tokens, self.n_head, self.d_k).permute(2, 0, 1, 3).reshape(-1, tokens, self.d_k)
        y = (q @ k.mT / self.d_k**0.5).softmax(-1) @ x.repeat(self.n_head, 1, 1)
        y = y.view(self.n_head, rows, width).permute(1, 0, 2) if self.turned else y.view(rows, self.n_head, width)
        made: Tensor = self.mlp(y.reshape(rows, -1))
        return made


class MeanQueryMixed(MeanQuery):
    """The same, cut as if rows stood before heads."""

    turned = False


def test_heads_that_stand_before_rows_are_not_mixed() -> None:
    assert check(MeanQuery).ok
    assert not check(MeanQueryMixed).ok


class SingleSteps(nn.Module):
    """A cache inside, for one token at a time: nothing hides the tokens of one call from each other."""

    drift = 1.0

    def __init__(self, dim: int, n_heads: int) -> None:
        super().__init__()
        self.heads = n_heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.cache_k, self.cache_v = torch.zeros(8, 64, dim), torch.zeros(8, 64, dim)

    def forward(self, x: Tensor, start_pos: int) -> Tensor:
        rows, tokens, width = x.shape
        self.cache_k, self.cache_v = self.cache_k.to(x), self.cache_v.to(x)
        self.cache_k[:rows, start_pos : start_pos + tokens] = self.wk(x)
        self.cache_v[:rows, start_pos : start_pos + tokens] = self.wv(x)
        k, v = (c[:rows, : start_pos + tokens] for c in (self.cache_k, self.cache_v))
        k = k * self.drift if start_pos else k
        q, k, v = (t.view(rows, -1, self.heads, width // self.heads).transpose(1, 2) for t in (self.wq(x), k, v))
        y = (q @ k.mT / (width // self.heads) ** 0.5).softmax(-1) @ v
        made: Tensor = self.wo(y.transpose(1, 2).flatten(2))
        return made


class Drifting(SingleSteps):
    """The same, but steps see other keys than they should."""

    drift = 2.0


def test_a_cache_for_single_tokens_is_compared_one_token_at_a_time() -> None:
    assert not {"cache-offset", "cache-mismatch"} & set(check(SingleSteps).slugs)
    assert {"cache-offset", "cache-mismatch"} & set(check(Drifting).slugs)


@dataclass
class Config:
    """Most of it may be left out; what is None is a number, or several of them."""

    name: str = ""
    block_size: int = 4096
    n_embd: int = 4096
    n_head: int = 32
    head_size: int | None = None
    n_query_groups: int | None = None
    sliding_window_indices: list[int] | None = None
    rope_indices: list[int] | None = None

    def __post_init__(self) -> None:
        if self.sliding_window_indices is not None:
            assert len(self.sliding_window_indices) == 2
        if self.rope_indices is not None:
            assert len(self.rope_indices) == 2
        self.head_size = self.head_size or self.n_embd // self.n_head
        self.n_query_groups = self.n_query_groups or self.n_head


class Configured(nn.Module):
    def __init__(self, config: Config, block_idx: int) -> None:
        super().__init__()
        assert config.head_size
        assert config.n_query_groups
        self.shape, self.index = (config.n_head, config.n_query_groups, config.head_size), block_idx
        self.qkv = nn.Linear(config.n_embd, (config.n_head + 2 * config.n_query_groups) * config.head_size)
        self.proj = nn.Linear(config.n_head * config.head_size, config.n_embd)

    def forward(self, x: Tensor) -> Tensor:
        heads, groups, size = self.shape
        q, k, v = self.qkv(x).view(*x.shape[:2], -1, size).transpose(1, 2).split((heads, groups, groups), 1)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        made: Tensor = self.proj(y.transpose(1, 2).flatten(2))
        return made


def test_a_configuration_is_not_told_a_number_where_it_takes_several() -> None:
    report = check(Configured)
    assert report.ok, report.slugs
    assert dict(report.conventions)["looks"] == "back only"


class Base:
    """No module itself: it keeps what both sides have in common."""

    def __init__(self, num_heads: int, dim_model: int, residual_dropout: float) -> None:
        self.num_heads, self.dim_model, self.residual_dropout = num_heads, dim_model, residual_dropout


class Layer(nn.Module):
    """Its sizes are asked of an object that is no configuration by name."""

    def __init__(self, parent: Any) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(parent.dim_model, parent.num_heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.attn(x, x, x, need_weights=False)[0]
        return y


class Stack(nn.Module, Base):
    """Bases are begun by their names, and given whatever comes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        nn.Module.__init__(self)
        Base.__init__(self, *args, **kwargs)
        self.layers = nn.ModuleList(Layer(self) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Dilated(nn.Module):
    """How far apart keys stand, for several groups of heads."""

    def __init__(self, embed_dim: int, num_heads: int, dilation_rates: Sequence[int], kinds) -> None:  # type: ignore[no-untyped-def]
        super().__init__()
        assert len(dilation_rates) == len(kinds)
        self.rates = list(dilation_rates)
        self.attn = nn.MultiheadAttention(embed_dim, num_heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = sum(self.attn(x, x[:, ::rate], x[:, ::rate], need_weights=False)[0] for rate in self.rates)
        return y


@pytest.mark.parametrize("target", [Layer, Stack, Dilated], ids=lambda kind: kind.__name__)
def test_it_is_built_by_what_its_constructor_does_with_its_arguments(target: type) -> None:
    report = check(target)
    assert report.verdict is not Verdict.WRONG, report.slugs


class PooledBeside(nn.Module):
    """One vector of what stands beside is added to every token: how long that is may matter."""

    def __init__(self, num_channels: int, context_dim: int, heads: int = 4) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(context_dim, heads, batch_first=True)
        self.out = nn.Linear(context_dim, num_channels)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        pooled = self.attn(context.mean(1, keepdim=True), context, context)[0]
        y: Tensor = x + self.out(pooled.squeeze(1))
        return y


def test_what_is_filled_in_beside_a_stream_does_not_accuse() -> None:
    assert check(PooledBeside).ok


class SecondMask(nn.Module):
    """Where both attentions look at the stream, each has a mask of its own."""

    def __init__(self, dim: int, heads: int = 4, double_self_attention: bool = False) -> None:
        super().__init__()
        self.both = double_self_attention
        self.one = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.two = nn.MultiheadAttention(dim, heads, batch_first=True) if self.both else None

    def forward(
        self, x: Tensor, key_mask: Tensor | None = None, encoder_attention_mask: Tensor | None = None
    ) -> Tensor:
        x = x + self.one(x, x, x, key_padding_mask=key_mask, need_weights=False)[0]
        if self.two is not None:
            x = x + self.two(x, x, x, key_padding_mask=encoder_attention_mask, need_weights=False)[0]
        return x


def test_a_mask_that_was_not_given_is_not_missed() -> None:
    assert "padding-leak" not in check(SecondMask).slugs
