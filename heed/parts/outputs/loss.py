"""Cross-entropy over a vocabulary: written out, and fused with the head so that the logits are never held at once.

Large vocabularies make the logits the largest tensors of a step: [tokens, vocabulary], several times over. The fused
form makes them a few rows at a time and takes the gradient while they are there, over real labels only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from ...kernels import entropy_, huge_pages, plain_

NO_LABEL = -100  # stands where nothing is to be predicted
WORTH = 1 << 20  # logits from which on it pays not to hold them all
ROWS = 512  # tokens whose logits are held at once: fewer would make products slow, more would leave the cache
HELD = 1 << 26  # logits held at once, at most


@dataclass(frozen=True)
class Loss:
    """Sums over tokens, never means: the mean over a step is known only when all its parts are there."""

    total: Tensor  # what is minimised
    nats: Tensor  # plain cross-entropy, for reports
    beside: Tensor | None = None  # a second sum, whose mean is added; it is over labels of its own (`Batch.beside`)


class LossHead(nn.Module, ABC):
    """A head that computes its loss without holding all logits."""

    @abstractmethod
    def nats(self, stream: Tensor, labels: Tensor) -> Tensor:
        """-Σ_t log p_t(label of t), over real labels. [..., width], [...]"""


def cross_entropy(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Loss:
    """-Σ_t Σ_v q_t(v) log p_t(v), with q = (1-ε) · onehot + ε / V (Szegedy et al. 2016), over real labels."""
    logits, labels = logits.flatten(0, -2), labels.flatten()
    if not smoothing:
        nats = F.cross_entropy(logits, labels, ignore_index=NO_LABEL, reduction="sum")
        return Loss(nats, nats.detach())
    log = logits.log_softmax(-1, dtype=torch.float32 if logits.dtype.itemsize < 4 else None)
    real = labels != NO_LABEL
    nats = -(log.gather(1, labels.clamp(min=0)[:, None])[:, 0] * real).sum()
    spread = -(log.mean(-1) * real).sum()
    return Loss((1 - smoothing) * nats + smoothing * spread, nats.detach())


def headed_cross_entropy(stream: Tensor, head: nn.Module, labels: Tensor, smoothing: float = 0.0) -> Loss:
    """`cross_entropy(head(stream), labels, smoothing)`, without holding the logits."""
    if isinstance(head, LossHead) and not smoothing:
        nats = head.nats(stream, labels)
        return Loss(nats, nats.detach())
    cast = torch.is_autocast_enabled(stream.device.type)
    # A head of another type is more than its weight; and where all logits fit at once, nothing is gained.
    plain = type(head) is nn.Linear and labels.numel() * head.out_features > WORTH
    if not plain or cast or torch.compiler.is_compiling():
        return cross_entropy(head(stream), labels, smoothing)
    given = (stream.flatten(0, -2), head.weight, head.bias, labels.flatten(), smoothing, torch.is_grad_enabled())
    total, nats = _Headed.apply(*given)  # type: ignore[no-untyped-call]
    return Loss(total, nats)


class _Headed(torch.autograd.Function):
    """Loss and gradient in one pass over the rows: ∂total/∂logits = p - (1-ε) · onehot - ε / V."""

    @staticmethod
    def forward(
        ctx: Any, stream: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float, learns: bool
    ) -> tuple[Tensor, Tensor]:
        rows = (labels != NO_LABEL).nonzero()[:, 0]
        x, wanted, size = stream[rows], labels[rows], len(weight)
        grad_x, grad_weight = torch.empty_like(x), torch.zeros_like(weight) if learns else weight
        grad_bias = None if bias is None else torch.zeros_like(bias)
        nats = stream.new_zeros((), dtype=torch.float64)
        spread = torch.zeros_like(nats)
        step = min(ROWS, max(16, HELD // size))
        held = x.new_empty(min(step, len(x)), size)  # once: new memory for every part would take as long as the product
        huge_pages((held,), now=False)
        for begin in range(0, len(x), step):
            part, label = x[begin : begin + step], wanted[begin : begin + step]
            grad = plain_(held[: len(part)], part, weight, bias)
            one, other = entropy_(grad, label, smoothing)  # the logits become their gradient
            nats, spread = nats + one, spread + other
            if learns:
                torch.mm(grad, weight, out=grad_x[begin : begin + step])
                grad_weight.addmm_(grad.T, part)
                if grad_bias is not None:
                    grad_bias += grad.sum(0)
        ctx.save_for_backward(rows, grad_x, grad_weight, grad_bias)
        ctx.tokens = len(stream)
        ctx.mark_non_differentiable(nats)
        return ((1 - smoothing) * nats + smoothing * spread).to(stream.dtype), nats

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        rows, grad_x, grad_weight, grad_bias = ctx.saved_tensors
        stream = grad_x.new_zeros(ctx.tokens, grad_x.shape[1]).index_copy_(0, rows, grad_x * grad)
        bias = None if grad_bias is None else grad_bias * grad
        return stream, grad_weight * grad, bias, None, None, None
