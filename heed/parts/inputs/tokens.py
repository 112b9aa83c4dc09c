"""Input embeddings: from what a user has (tokens, an image, audio) to the hidden states that mixers work on."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from ...core.config import Config, Flag, Size
from ...core.contract import Where
from ...core.errors import InputError
from ..layers.dropout import Dropout
from ..positions import Adds

Place: TypeAlias = Literal["token", "sum", "norm"]


class Embeddings(nn.Module):
    """From what a user has to the stream that mixers work on."""

    @abstractmethod
    def place(self, x: Tensor, where: Where) -> Tensor:
        """Bare embeddings, told where they are."""


class Narrow(Config):
    """Embeddings of fewer channels than the stream, widened by a matrix (Lan et al. 2020, ALBERT).

    `after` says when: after the "token" (OPT), its "sum" with the position (DeBERTa), or the "norm" (ALBERT).
    """

    size: Size  # channels of an embedding
    after: Place = "norm"  # where they are widened: after the token, its sum with the position, or the norm
    bias: Flag = True

    @staticmethod
    def widths(narrow: Narrow | None, width: int) -> tuple[int, int]:
        """How wide position and norm are."""
        if narrow is None:
            return width, width
        return width if narrow.after == "token" else narrow.size, narrow.size if narrow.after == "norm" else width

    def build(self, width: int) -> Widen:
        return Widen(self, width)


class Widen(nn.Linear):
    """The matrix, and when it is applied."""

    def __init__(self, config: Narrow, width: int) -> None:
        super().__init__(config.size, width, bias=config.bias)
        self.after = config.after


class TokenEmbeddings(Embeddings):
    """x = dropout( norm( scale · E[token] + position ) ), every piece but E optional.

    A token may bring further fields, ids that stand beside its own: its segment, and the box it has on a page.
    """

    def __init__(
        self,
        table: nn.Embedding,
        scale: float,
        position: Adds | None,
        norm: nn.Module | None,
        dropout: float,
        *,
        narrow: Widen | None = None,
        segments: int | None = None,
        boxes: int | None = None,
    ) -> None:
        super().__init__()
        self.table, self.scale, self.position, self.norm, self.narrow = table, scale, position, norm, narrow
        self.segment = None if segments is None else embedding(segments, table.embedding_dim)
        self.box = None if boxes is None else Boxes(boxes, table.embedding_dim)
        self.dropout = Dropout(dropout)

    @property
    def fields(self) -> int:
        """Ids that a token may bring: its own, its segment, its box."""
        return 1 + (self.segment is not None) + (4 if self.box is not None else 0)

    def forward(self, tokens: Tensor, where: Where) -> Tensor:
        return self.place(self.embed(tokens, where), where)

    def embed(self, tokens: Tensor, where: Where) -> Tensor:
        """The bare embeddings. [B, T] or [B, T, fields] -> [B, T, D] Padding may hold anything, even unknown ids."""
        if tokens.dim() == 2:
            tokens = tokens.unsqueeze(-1)  # fields that are not named are 0
        if tokens.is_floating_point() or tokens.dtype == torch.bool or tokens.dim() != 3:
            raise InputError(
                f"tokens must be integer ids of shape [rows, tokens], got {tokens.dtype} of shape {tuple(tokens.shape)}"
            )
        if tokens.shape[2] > self.fields:
            raise InputError(f"a token brings {tokens.shape[2]} ids, this model knows {self.fields} of each")
        tokens = nn.functional.pad(where.blank(tokens), (0, self.fields - tokens.shape[2]))
        x = _looked_up(self.table, tokens[..., 0], "the vocabulary")
        # Only tokens are scaled: `place` multiplies the sum, so the other fields are divided before.
        if self.segment is not None:
            segment = _looked_up(self.segment, tokens[..., 1], "the table of segments")
            x = x + (segment if self.scale == 1.0 else segment / self.scale)
        return x if self.box is None else x + self.box(tokens[..., -4:]) / self.scale

    def place(self, x: Tensor, where: Where) -> Tensor:
        """Embeddings, told where they are."""
        x = self._widened(x if self.scale == 1.0 else x * self.scale, "token")  # a copy of all tokens takes its time
        x = x if self.position is None else self.position(x, where.blank(where.position))
        x = self._widened(x, "sum")
        x = self._widened(x if self.norm is None else self.norm(x), "norm")
        placed: Tensor = self.dropout(x)
        return placed

    def _widened(self, x: Tensor, after: Place) -> Tensor:
        return x if self.narrow is None or self.narrow.after != after else self.narrow(x)


class Boxes(nn.Module):
    """Where a token is on a page: X[left] + Y[top] + X[right] + Y[bottom] + H[height] + W[width] (Xu et al. 2020)."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.x, self.y, self.height, self.width = (embedding(size, width) for _ in range(4))

    def forward(self, box: Tensor) -> Tensor:
        """Boxes as left, top, right, bottom. [B, T, 4] -> [B, T, D]"""
        left, top, right, bottom = box.unbind(-1)
        named = (
            *((self.x, left), (self.y, top), (self.x, right), (self.y, bottom)),
            *((self.height, bottom - top), (self.width, right - left)),
        )
        return torch.stack([_looked_up(table, index, "a page") for table, index in named]).sum(0)


def embedding(vocabulary: int, width: int) -> nn.Embedding:
    """A table whose rows have length one on average: times √width they have the size of the sinusoids."""
    table = nn.Embedding(vocabulary, width)
    nn.init.normal_(table.weight, std=width**-0.5)
    return table


def _looked_up(table: nn.Embedding, index: Tensor, what: str) -> Tensor:
    try:
        found: Tensor = table(index)
    except IndexError:
        low, high = int(index.min()), int(index.max())
        raise InputError(
            f"token ids from {low} to {high} were given, but {what} has {table.num_embeddings} "
            f"(0 to {table.num_embeddings - 1}); is this the tokenizer that the model was made with?"
        ) from None
    return found
