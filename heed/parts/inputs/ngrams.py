"""Hashed n-grams (Bojanowski et al. 2017, fastText): what a word is made of, so that rare words resemble others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from ...core.contract import Where
from ..layers.dropout import Dropout
from .tokens import embedding

PRIME = 2**31 - 1  # products of two numbers below it fit into 64 bits
MARK = -1  # the edge of a word, or of a text, as an id


class Words(NamedTuple):
    """The words of texts: runs of tokens between white space. What stands between counts as of the word before it."""

    number: Tensor  # [B, T] which word a token is of
    inside: Tensor  # [B, T] whether it is a part of that word, neither padding nor between words
    where: Where  # [B, W] the words themselves

    @classmethod
    def of(cls, tokens: Tensor, where: Where, between: Sequence[int]) -> Self:
        """A row without any word has one that holds nothing, a row without tokens has none."""
        inside = where.real & ~torch.isin(tokens, torch.tensor(between, dtype=tokens.dtype, device=tokens.device))
        begins = inside.clone()
        if between:
            begins[:, 1:] &= ~inside[:, :-1]
        number = (begins.cumsum(1) - 1).clamp(min=0)
        count = begins.sum(1).maximum(where.real.any(1).long())
        return cls(number, inside, Where.ragged(count, width=max(1, int(count.max()) if count.numel() else 0)))

    def summed(self, x: Tensor) -> Tensor:
        """What the tokens of each word bring, added up. [B, T, D] -> [B, W, D]"""
        x = x.masked_fill(~self.inside[..., None], 0)
        return x.new_zeros(*self.where.shape, x.shape[-1]).scatter_add(1, self.number[..., None].expand_as(x), x)

    def spread(self, x: Tensor) -> Tensor:
        """Every token gets what its word has. [B, W, D] -> [B, T, D]"""
        return x.take_along_dim(self.number[..., None], 1)


class NGrams(nn.Module):
    """Embeddings of words by their n-grams, hashed into a table of `buckets` rows.

        x_w = G[hash(w)] + 1/√m · Σ_{g in n-grams of w} G[hash(g)]

    An n-gram may begin or end with an edge of the word: so beginnings and endings are told from what is within. In
    training a share of all n-grams and words is not read, `unread`, each by itself (word dropout): so none is relied
    upon alone. Only with `whole` is a word itself read at all.
    """

    def __init__(self, sizes: Sequence[int], buckets: int, width: int, *, whole: bool, unread: float) -> None:
        super().__init__()
        self.sizes, self.table = tuple(sizes), embedding(buckets, width)
        self.whole, self.unread = whole, Dropout(unread)

    def forward(self, tokens: Tensor, words: Words) -> Tensor:
        """[B, T] ids -> [B, W, D]"""
        index, there = self.hashed(tokens, words)
        there = there & (self.unread(torch.ones_like(there, dtype=self.table.weight.dtype)) > 0)
        last = words.where.order.amax(1, keepdim=True).clamp(min=0)
        owner = torch.cat((words.number, last), 1)  # what ends at the edge behind a row is of its last word
        owner = owner + torch.arange(len(tokens), device=tokens.device)[:, None] * words.where.shape[1]
        count = torch.zeros(words.where.order.numel(), dtype=torch.long, device=tokens.device)
        count.index_add_(0, owner.flatten(), there.sum(-1).flatten())
        found = nn.functional.embedding_bag(index[there], self.table.weight, count.cumsum(0) - count, mode="sum")
        x: Tensor = (found / count.clamp(min=1).to(found).sqrt()[:, None]).view(*words.where.shape, -1)
        if not self.whole:
            return x
        read: Tensor = self.unread(words.where.real[..., None].to(x))
        whole: Tensor = self.table(self.of_words(tokens, words))
        return x + whole * read

    def hashed(self, tokens: Tensor, words: Words) -> tuple[Tensor, Tensor]:
        """The rows of the n-grams that end at each token or at the edge behind it, and which of them there are.

        [B, T + 1, sizes] each
        """
        longest = max(self.sizes)
        ids = nn.functional.pad(tokens.long().masked_fill(~words.inside, MARK), (longest - 1, 1), value=MARK)
        within, end = ids != MARK, tokens.shape[1] + 1
        rows, there = list[Tensor](), list[Tensor]()
        for size in self.sizes:
            parts = [slice(longest - size + place, longest - size + place + end) for place in range(size)]
            rows.append(
                sum((_code(ids[:, part], place) for place, part in enumerate(parts)), _salt(ids[:, :end], size))
            )
            found = torch.stack([within[:, part] for part in parts])
            there.append(found[1:-1].all(0) if size > 2 else found.any(0))  # either end may be an edge
        return self._row(torch.stack(rows, -1)), torch.stack(there, -1)

    def of_words(self, tokens: Tensor, words: Words) -> Tensor:
        """The row of each word as a whole. [B, W]"""
        place = words.inside.long().cumsum(1)
        before = torch.zeros_like(words.where.order).scatter_add(1, words.number, words.inside.long()).cumsum(1)
        offset = place - nn.functional.pad(before, (1, 0)).gather(1, words.number) - 1
        code = _code(tokens.long(), offset).masked_fill(~words.inside, 0)
        return self._row(torch.zeros_like(words.where.order).scatter_add(1, words.number, code))

    def _row(self, code: Tensor) -> Tensor:
        return code % PRIME % self.table.num_embeddings


def _code(ids: Tensor, place: Tensor | int) -> Tensor:
    """A number for a token at a place, below PRIME, as if drawn by chance: sums of them tell sequences apart."""
    x = (ids + 2 + (place + 1) * 1_000_003) % PRIME
    return x * x % PRIME * 48_271 % PRIME


def _salt(like: Tensor, size: int) -> Tensor:
    return torch.full_like(like, size * 999_983)
