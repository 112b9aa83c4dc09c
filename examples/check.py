"""The bug in an attention module, found and named: `heed.check` asks what holds for any attention of its kind."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import heed


class Buggy(nn.Module):
    """Multi-head attention with two mistakes that still train: can you see them?"""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads, self.d_model = num_heads, d_model
        self.query, self.key, self.value, self.out = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        rows, tokens, _ = x.shape
        q, k, v = (
            layer(x).view(rows, tokens, self.num_heads, -1).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        weights = self.weigh(q @ k.transpose(-2, -1), mask)
        return self.out((weights @ v).transpose(1, 2).reshape(rows, tokens, self.d_model))

    def weigh(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        weights = torch.softmax(scores / self.d_model**0.5, dim=-1)
        return weights if mask is None else weights.masked_fill(mask == 0, 0.0)


class Mended(Buggy):
    """Scaled by the size of a head; hidden before the softmax, not after it."""

    def weigh(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        scores = scores / (self.d_model // self.num_heads) ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask == 0, torch.finfo(scores.dtype).min)
        return torch.softmax(scores, dim=-1)


for module in (Buggy, Mended):
    report = heed.check(module)
    print(f"{module.__name__}: {len(report.wrong)} bugs")
    for found in report.wrong:
        print(f"  {found.bug.slug}: {found.bug.says}")
        print(f"    seen: {found.evidence[0]}")
