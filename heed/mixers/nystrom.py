"""Nyström attention of Nyströmformer (Xiong et al. 2021): the attention matrix approximated through landmarks."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

import torch
from torch import Tensor

from ..core.config import Size
from ..core.contract import MixerConfig, Where
from ..parts.attention.attend import attend, written_out
from ..parts.convolution.value_convolution import Convolved, ConvolvedConfig, Kernel
from ..parts.layers.norms import RMSNorm

Coefficient: TypeAlias = Literal["head", "row"]


class Nystrom(Convolved):
    """Tokens ask landmarks and landmarks ask tokens; what lies between is the inverse of what landmarks ask landmarks.

        y = W_o ( F A⁺ B v + w * v ),   F = softmax(q k̃ᵀ / √d),  A = softmax(q̃ k̃ᵀ / √d),  B = softmax(q̃ kᵀ / √d)

    q̃ and k̃ are the means of queries and keys over `landmarks` parts of the row, which differ by at most one token; w is
    a convolution along the tokens. A⁺ comes from some rounds of Z ← ¼ Z (13 - AZ (15 - AZ (7 - AZ))) that begin with
    Aᵀ / c. Xiong et al. 2021 (Nyströmformer). A row that is not longer than its landmarks is attended exactly.

    c is the largest column sum of A, that of the head itself. The authors' code takes the largest of the whole batch,
    so that a row depends on the rows beside it; `coefficient` = "row" takes that of all heads of a row, which is what
    their code gives for the row alone.

    Costs O(n·l·d + l³) time and O(n·(l + d)) memory over n tokens and l landmarks; looks ahead and remembers nothing.
    """

    class Config(ConvolvedConfig):
        paper: ClassVar[str] = "Xiong et al. 2021, Nyströmformer, arXiv 2102.03902"

        kind: Literal["nystrom"] = "nystrom"
        landmarks: Size = 64  # l
        rounds: Size = 6  # towards the inverse
        kernel: Kernel = 33  # of the convolution; 0: there is none
        coefficient: Coefficient = "head"  # whose largest column sum the first guess is divided by

        def build(self, width: int) -> Nystrom:
            return Nystrom(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            return (
                *(cls(), cls(landmarks=4), cls(landmarks=3, coefficient="row", kernel=0)),
                *(cls(landmarks=1, rounds=2, kernel=5, bias=False), cls(landmarks=10, kv_heads=2, kernel=1)),
                cls(landmarks=5, heads=3, head_size=5, scale=0.3, head_norm=RMSNorm()),
            )

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(config, width)
        self.landmarks, self.rounds, self.coefficient = config.landmarks, config.rounds, config.coefficient

    def attended(self, query: Tensor, key: Tensor, value: Tensor, where: Where) -> Tensor:
        """Rows that are longer than their landmarks by landmarks, the others exactly."""
        self.weights(lambda: self.written_out(query, key, where))
        if not where.span.padded:
            form = self.exactly if where.shape[1] <= self.landmarks else self.by_landmarks
            return form(query, key, value, where.real)
        few = where.real.sum(1) <= self.landmarks
        y = torch.zeros_like(query)
        for rows, form in ((few.nonzero().flatten(), self.exactly), ((~few).nonzero().flatten(), self.by_landmarks)):
            if rows.numel():
                y = y.index_copy(0, rows, form(query[rows], key[rows], value[rows], where.real[rows]))
        return y

    def exactly(self, query: Tensor, key: Tensor, value: Tensor, real: Tensor) -> Tensor:
        """Plain attention among the tokens of a row. [B, T, H, d] three times; real [B, T]"""
        return attend(query, key, value, _seen(real), scale=self.scale, dropout=self.drop)

    def by_landmarks(self, query: Tensor, key: Tensor, value: Tensor, real: Tensor) -> Tensor:
        """The equation from right to left, so that no matrix is larger than tokens by landmarks."""
        some_queries, some_keys, inverse = self._landmarks(query, key, real)
        told = attend(some_queries, key, value, _seen(real), scale=self.scale, dropout=self.drop)  # B v
        told = torch.einsum("bhlm,bmhd->blhd", inverse, told)
        return attend(query, some_keys, told, scale=self.scale, dropout=self.drop)

    def _landmarks(self, query: Tensor, key: Tensor, real: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q̃ and k̃ [B, l, H, d], and A⁺ [B, H, l, l]."""
        share = _parts(real, self.landmarks, query.dtype)
        some_queries, some_keys = (torch.einsum("blt,bthd->blhd", share, x) for x in (query, key))
        asked = (torch.einsum("blhd,bmhd->bhlm", some_queries, some_keys) * self.scale).softmax(-1)
        return some_queries, some_keys, self._inverse(asked)

    def divisor(self, columns: Tensor) -> Tensor:
        """c, of the column sums of A. [B, H, l] -> [B, H or 1, 1]"""
        return columns.amax(-1 if self.coefficient == "head" else (-2, -1), keepdim=True)

    def _inverse(self, matrix: Tensor) -> Tensor:
        guess = matrix.mT / self.divisor(matrix.sum(-2))[..., None]
        one = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
        for _ in range(self.rounds):
            product = matrix @ guess
            guess = 0.25 * guess @ (13 * one - product @ (15 * one - product @ (7 * one - product)))
        return guess

    def written_out(self, query: Tensor, key: Tensor, where: Where) -> Tensor:
        """What each token takes of each, F A⁺ B: n² numbers, made only for a look. Some are below 0."""
        made = []
        for row, real in enumerate(where.real):
            q, k, mask = query[row : row + 1], key[row : row + 1], real[None]
            if int(real.sum()) <= self.landmarks:
                made.append(written_out(q, k, k, _seen(mask), scale=self.scale)[1])
                continue
            some_queries, some_keys, inverse = self._landmarks(q, k, mask)
            front = written_out(q, some_keys, some_keys, scale=self.scale)[1]
            made.append(front @ inverse @ written_out(some_queries, k, k, _seen(mask), scale=self.scale)[1])
        return torch.cat(made)


def _seen(real: Tensor) -> Tensor | None:
    """Every token sees all tokens of the row. [B, 1, 1, T]"""
    return None if bool(real.all()) else real[:, None, None]


def _parts(real: Tensor, landmarks: int, dtype: torch.dtype) -> Tensor:
    """The share that each token has in each landmark: rows are cut into parts as equal as can be. [B, l, T]"""
    length = real.sum(1, keepdim=True)
    rank = torch.arange(real.shape[1], device=real.device).expand_as(real)
    part = rank * landmarks // length.clamp(min=1)
    member = (part[:, None] == torch.arange(landmarks, device=real.device)[:, None]) & real[:, None]
    return member.to(dtype) / member.sum(-1, keepdim=True).clamp(min=1)
