"""Cross-entropy of scores and its slope, in place of the scores."""

from __future__ import annotations

import torch
from torch import Tensor

from .build import library


def entropy_(scores: Tensor, labels: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """Sums over tokens of -log p(label) and, if it counts, of -mean log p. [T, V], [T]; scores become their slope:

    slope = p - (1-ε) · onehot(label) - ε / V, of (1-ε) · the one plus ε · the other.
    """
    compiled = library() if scores.dtype == torch.float32 and scores.is_contiguous() and scores.is_cpu else None
    if compiled is None:
        return entropy_written_out(scores, labels, smoothing)
    rows, count = scores.shape
    both = torch.empty(2, rows, dtype=torch.float64)
    given = (scores.data_ptr(), labels.data_ptr(), rows, count, smoothing)
    compiled.heed_entropy(*given, both[0].data_ptr(), both[1].data_ptr(), torch.get_num_threads())
    nats, spread = both.sum(1)
    return nats, spread


def entropy_written_out(scores: Tensor, labels: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """The same in torch."""
    label = labels[:, None]
    level = scores.logsumexp(1, keepdim=True)
    nats = (level - scores.gather(1, label)).sum().double()
    spread = (level[:, 0] - scores.mean(1)).sum().double() if smoothing else torch.zeros_like(nats)
    slope = scores.sub_(level).exp_().sub_(smoothing / scores.shape[1])
    slope.scatter_add_(1, label, slope.new_full(label.shape, smoothing - 1))
    return nats, spread
