"""Adaptive vocabularies: tokens in clusters, from common to rare, of which each has fewer channels than the one before.

Token ids must fall with frequency, as those of a vocabulary sorted by counts do. Most tokens of a text are then of the
first cluster, so that a loss reads few of the others' weights, and most of the vocabulary has few.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
import torch.nn.functional as F
from pydantic import model_validator
from torch import Tensor, nn

from ...core.config import Config, Flag, Size
from ...core.errors import ConfigError
from ..outputs.loss import NO_LABEL, LossHead


class Adaptive(Config):
    """Clusters of tokens, for embeddings (Baevski & Auli 2019) and the softmax (Grave et al. 2017) alike."""

    cutoffs: tuple[Size, ...] = ()  # the first id of each cluster but the first
    shrink: Size = 4  # a cluster has so many times fewer channels than the one before; 1: all have the same
    size: Size | None = None  # channels of the first; None: as many as the stream has
    tied: tuple[Flag, ...] = ()  # whose projections embeddings and logits share, cluster by cluster; if not named, not

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if list(self.cutoffs) != sorted(set(self.cutoffs)):
            raise ValueError(f"cutoffs must ascend, {list(self.cutoffs)} do not")
        if len(self.tied) > self.clusters:
            raise ValueError(f"tied speaks of {len(self.tied)} clusters, {len(self.cutoffs)} cutoffs make fewer")
        return self

    @property
    def clusters(self) -> int:
        """How many there are."""
        return len(self.cutoffs) + 1

    def bounds(self, vocabulary: int) -> tuple[int, ...]:
        """The first id of every cluster, and the end."""
        if self.cutoffs and self.cutoffs[-1] >= vocabulary:
            raise ConfigError(
                f"the cutoff {self.cutoffs[-1]} leaves nothing of a vocabulary of {vocabulary}; use cutoffs below it"
            )
        return (0, *self.cutoffs, vocabulary)

    def sizes(self, width: int) -> tuple[int, ...]:
        """Channels of every cluster."""
        first = self.size or width
        sizes = tuple(first // self.shrink**cluster for cluster in range(self.clusters))
        if sizes[-1] == 0:
            raise ConfigError(
                f"{first} channels shrunk {self.shrink}-fold leave none after {sizes.index(0)} clusters; "
                "use a smaller shrink, or fewer cutoffs"
            )
        return sizes

    def projected(self, width: int) -> bool:
        """Whether there are matrices between clusters and stream."""
        return self.shrink > 1 or self.size not in (None, width)

    def tables(self, vocabulary: int, width: int) -> list[tuple[int, int]]:
        """Tokens and channels of every table: clusters of one width share one."""
        bounds, sizes = self.bounds(vocabulary), self.sizes(width)
        if self.shrink == 1:
            return [(vocabulary, sizes[0])]
        return [(end - begin, size) for begin, end, size in zip(bounds, bounds[1:], sizes, strict=False)]


class AdaptiveEmbedding(nn.Module):
    """E(w) = P_c E_c[w - begin_c] for a token w of cluster c (Baevski & Auli 2019).

    Rare tokens have few channels, and a matrix P_c that widens them.
    """

    def __init__(self, config: Adaptive, vocabulary: int, width: int) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = vocabulary, width
        self.bounds = config.bounds(vocabulary)
        shapes = config.tables(vocabulary, width)
        self.tables = nn.ModuleList(nn.Embedding(*shape) for shape in shapes)
        many = len(shapes) if config.projected(width) else 0
        self.widen = nn.ParameterList(torch.empty(width, size) for _, size in shapes[:many])
        for table, (_, size) in zip(self.tables, shapes, strict=True):
            nn.init.normal_(table.weight, std=size**-0.5)  # type: ignore[arg-type]  # of an Embedding
        for matrix in self.widen:
            nn.init.normal_(matrix, std=width**-0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """[...] -> [..., width]"""
        if len(self.tables) == 1:
            return self._embedded(0, tokens)
        flat = tokens.flatten()
        if flat.numel() and not 0 <= int(flat.min()) <= int(flat.max()) < self.num_embeddings:
            raise IndexError("index out of range")  # as a table says it
        made = self.tables[0].weight.new_zeros(len(flat), self.embedding_dim)  # type: ignore[operator]
        for cluster, (begin, end) in enumerate(zip(self.bounds, self.bounds[1:], strict=False)):
            rows = ((flat >= begin) & (flat < end)).nonzero()[:, 0]
            made = made.index_copy(0, rows, self._embedded(cluster, flat[rows] - begin).to(made.dtype))
        return made.view(*tokens.shape, -1)

    def _embedded(self, number: int, tokens: Tensor) -> Tensor:
        found: Tensor = self.tables[number](tokens)
        return F.linear(found, self.widen[number]) if len(self.widen) else found


class AdaptiveSoftmax(LossHead):
    """log p(w) of all tokens w, cluster by cluster (Grave et al. 2017):

        log p(w) = head[w]                       of the first cluster,   head = log softmax( [W_0 ; T] P_0ᵀ x )
        log p(w) = head[tail_c] + tail_c[w]      of any other,         tail_c = log softmax( W_c P_cᵀ x )

    where T has a row for each cluster but the first. With cutoffs at C common tokens of V, the logits of a token cost
    O(C·d), and those of a rare one its cluster's beside.
    """

    def __init__(self, config: Adaptive, vocabulary: int, width: int, *, bias: bool) -> None:
        super().__init__()
        self.bounds, sizes = config.bounds(vocabulary), config.sizes(width)
        shapes = config.tables(vocabulary, width)
        self.weights = nn.ParameterList(torch.empty(shape) for shape in shapes)
        self.biases = nn.ParameterList(torch.zeros(tokens) for tokens, _ in shapes) if bias else None
        many = config.clusters if config.projected(width) else 0
        self.narrow = nn.ParameterList(torch.empty(width, size) for size in sizes[:many])
        self.tails = nn.Linear(sizes[0], config.clusters - 1, bias=bias) if config.cutoffs else None
        for weight in self.weights:
            nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
        for matrix in self.narrow:
            nn.init.normal_(matrix, std=width**-0.5)

    def tie(self, table: AdaptiveEmbedding, *, weights: bool, projections: Sequence[bool]) -> None:
        """Share with the embeddings: the weights of tokens, and the projections of some clusters."""
        for number, one in enumerate(table.tables if weights else ()):
            self.weights[number] = one.weight
        for number, tied in enumerate(projections[: len(self.narrow)]):
            if tied:
                self.narrow[number] = table.widen[number if len(table.widen) > 1 else 0]

    def forward(self, stream: Tensor) -> Tensor:
        """[..., width] -> [..., vocabulary]"""
        head = self._logits(0, stream).log_softmax(-1)
        common = self.bounds[1]
        made = [head[..., :common]]
        for cluster in range(1, len(self.bounds) - 1):
            made.append(head[..., common + cluster - 1, None] + self._logits(cluster, stream).log_softmax(-1))
        return torch.cat(made, -1)

    def nats(self, stream: Tensor, labels: Tensor) -> Tensor:
        """Over real labels, of which only those of a rare cluster look at that cluster."""
        return self.nats_each(stream, labels).sum()

    def nats_each(self, stream: Tensor, labels: Tensor) -> Tensor:
        """-log p of every label, 0 where there is none. [..., width], [...] -> [...]"""
        real = (labels != NO_LABEL).flatten().nonzero()[:, 0]
        x, wanted = stream.flatten(0, -2)[real], labels.flatten()[real]
        inner = torch.tensor(self.bounds[1:-1], device=wanted.device, dtype=wanted.dtype)
        cluster = torch.bucketize(wanted, inner, right=True)
        first = torch.where(cluster == 0, wanted, self.bounds[1] + cluster - 1)
        found = self._logits(0, x).log_softmax(-1).gather(1, first[:, None])[:, 0]
        for number in range(1, len(self.bounds) - 1):
            rows = (cluster == number).nonzero()[:, 0]
            tail = self._logits(number, x[rows]).log_softmax(-1)
            found = found.index_add(0, rows, tail.gather(1, wanted[rows, None] - self.bounds[number])[:, 0])
        return found.new_zeros(labels.numel()).index_copy(0, real, -found).view(labels.shape)

    def _logits(self, cluster: int, x: Tensor) -> Tensor:
        """Of the tokens of a cluster; for the first, of the other clusters behind them."""
        x = x @ self.narrow[cluster] if len(self.narrow) else x
        number, tokens = (cluster, slice(None)) if len(self.weights) > 1 else (0, slice(*self.bounds[cluster:][:2]))
        logits = F.linear(x, self.weights[number][tokens], None if self.biases is None else self.biases[number][tokens])
        return logits if cluster or self.tails is None else torch.cat((logits, self.tails(x)), -1)
