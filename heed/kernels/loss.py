"""Cross-entropy of logits and its gradient, which is written in their place."""

from __future__ import annotations

import torch
from torch import Tensor

from ..core.errors import InputError
from .build import library
from .dispatch import address
from .refusals import Refusal, must_be_done


def entropy_(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """Sums over tokens of -log p(label) and, if it counts, of -mean log p. [T, V], [T]; logits become their gradient:

    grad = p - (1-ε) · onehot(label) - ε / V, of (1-ε) · the one plus ε · the other.
    """
    compiled = library() if logits.dtype == torch.float32 and logits.is_contiguous() and logits.is_cpu else None
    if compiled is None:
        return entropy_written_out(logits, labels, smoothing)
    (rows, count), labels = logits.shape, labels.contiguous()
    both = logits.new_empty(2, rows, dtype=torch.float64)
    given = (logits.data_ptr(), address("labels", labels, torch.int64, rows), rows, count, smoothing)
    refused = compiled.heed_entropy(*given, both[0].data_ptr(), both[1].data_ptr(), torch.get_num_threads())
    if refused == Refusal.VALUES:
        found = f"{int(labels.min())} to {int(labels.max())}"
        raise InputError(f"labels are {found}; the classes are 0 to {count - 1}")
    must_be_done(refused)
    nats, spread = both.sum(1)
    return nats, spread


def entropy_written_out(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """The same in torch."""
    label = labels[:, None]
    level = logits.logsumexp(1, keepdim=True)
    nats = (level - logits.gather(1, label)).sum().double()
    spread = (level[:, 0] - logits.mean(1)).sum().double() if smoothing else torch.zeros_like(nats)
    grad = logits.sub_(level).exp_().sub_(smoothing / logits.shape[1])
    grad.scatter_add_(1, label, grad.new_full(label.shape, smoothing - 1))
    return nats, spread
