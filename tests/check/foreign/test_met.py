"""What an argument is for: a size that a caller tells, a text written beside a source, a switch called a mask."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from heed.check import CannotCheck, check


class ToldItsSize(nn.Module):
    """What scores are divided by is told to the constructor: which size that is, its caller decides."""

    def __init__(self, query_key_size: int) -> None:
        super().__init__()
        self.scale: Tensor
        self.register_buffer("scale", torch.sqrt(torch.FloatTensor([query_key_size])))

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return (query @ key.transpose(2, 3) / self.scale).softmax(3) @ value


class TellsAllHeads(nn.Module):
    """A caller that tells it the size of all heads together."""

    def __init__(self, embedding_size: int, num_heads: int) -> None:
        super().__init__()
        self.heads, self.attend = num_heads, ToldItsSize(embedding_size)
        self.q, self.k, self.v, self.o = (nn.Linear(embedding_size, embedding_size) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (fc(x).view(*x.shape[:2], self.heads, -1).transpose(1, 2) for fc in (self.q, self.k, self.v))
        y: Tensor = self.o(self.attend(q, k, v).transpose(1, 2).flatten(2))
        return y


def test_a_scale_by_a_size_that_was_guessed_is_its_callers() -> None:
    assert "wrong-scale" not in check(ToldItsSize).slugs
    assert "wrong-scale" in check(TellsAllHeads).slugs


class OnlyCalledSo(nn.Module):
    """It is called after attention, and each token stays by itself."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.attention = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.attention(x)
        return y


def test_what_is_only_called_attention_is_not_cleared() -> None:
    with pytest.raises(CannotCheck, match="no attention in"):
        check(type("GatedAttention", (OnlyCalledSo,), {}))


class Translator(nn.Module):
    """Reads one text and writes another, with masks that must be given."""

    def __init__(self, src_vocab_size: int, tgt_vocab_size: int, d_model: int, heads: int) -> None:
        super().__init__()
        self.read, self.write = nn.Embedding(src_vocab_size, d_model), nn.Embedding(tgt_vocab_size, d_model)
        self.own, self.cross = (nn.MultiheadAttention(d_model, heads, batch_first=True) for _ in range(2))
        self.out = nn.Linear(d_model, tgt_vocab_size)

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor, tgt_mask: Tensor) -> Tensor:
        memory, x = self.read(src), self.write(tgt)
        seen = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril() & tgt_mask[0, 0]
        x = x + self.own(x, x, x, attn_mask=~seen, need_weights=False)[0]
        hidden = ~src_mask[:, 0, 0].expand(len(x), memory.shape[1])
        x = x + self.cross(x, memory, memory, key_padding_mask=hidden, need_weights=False)[0]
        y: Tensor = self.out(self.mixed(x))
        return y

    def mixed(self, x: Tensor) -> Tensor:
        return x


class MixedTranslator(Translator):
    """The same, with a mean over the rows of a batch."""

    def mixed(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


def test_a_model_that_reads_a_source_is_asked_by_what_it_writes() -> None:
    report = check(Translator)
    assert report.ok
    assert report.asked
    assert "asked by its scores" in report.unchecked[0]
    assert check(MixedTranslator).slugs == ["batch-mixing"]


def with_a_switch(q: Tensor, k: Tensor, v: Tensor, mask: bool | None) -> Tensor:
    """Whatever it is called, it is a switch: the mask itself is made here."""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if mask:
        mask = torch.ones(scores.shape[-2:]).tril().bool()  # type: ignore[assignment]
        scores = scores.masked_fill(~mask, -torch.inf)  # type: ignore[call-overload]
    return scores.softmax(-1) @ v


def with_a_slip(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """A mask that is asked for its truth."""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if mask:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ v


def test_a_switch_that_is_called_a_mask_is_none() -> None:
    assert check(with_a_switch).ok
    assert check(with_a_slip).slugs == ["mask-raises"]
