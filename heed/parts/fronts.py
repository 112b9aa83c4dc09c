"""Fronts: from what a user has (tokens) to the stream that mixers work on."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..core.contract import Where
from ..core.errors import InputError
from .dropout import Dropout
from .positions import Adds


class Tokens(nn.Module):
    """x = dropout( norm( scale · E[token] + position ) ), every piece but E optional."""

    def __init__(
        self, table: nn.Embedding, scale: float, position: Adds | None, norm: nn.Module | None, dropout: float
    ) -> None:
        super().__init__()
        self.table, self.scale, self.position, self.norm = table, scale, position, norm
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Tensor, where: Where) -> Tensor:
        return self.place(self.embed(tokens, where), where)

    def embed(self, tokens: Tensor, where: Where) -> Tensor:
        """The bare embeddings. [B, T, D] Padding may hold anything, even ids that do not exist."""
        if tokens.is_floating_point() or tokens.dtype == torch.bool or tokens.dim() != 2:
            raise InputError(
                f"tokens must be integer ids of shape [rows, tokens], got {tokens.dtype} of shape {tuple(tokens.shape)}"
            )
        try:
            found: Tensor = self.table(where.blank(tokens))
        except IndexError:
            low, high = int(tokens.min()), int(tokens.max())
            raise InputError(
                f"token ids from {low} to {high} were given, but the vocabulary has {self.table.num_embeddings} "
                f"(0 to {self.table.num_embeddings - 1}); is this the tokenizer that the model was made with?"
            ) from None
        return found

    def place(self, x: Tensor, where: Where) -> Tensor:
        """Embeddings, told where they are."""
        x = x * self.scale
        x = x if self.position is None else self.position(x, where.blank(where.position))
        placed: Tensor = self.dropout(x if self.norm is None else self.norm(x))
        return placed


def embedding(vocabulary: int, width: int) -> nn.Embedding:
    """A table whose rows have length one on average: times √width they have the size of the sinusoids."""
    table = nn.Embedding(vocabulary, width)
    nn.init.normal_(table.weight, std=width**-0.5)
    return table
