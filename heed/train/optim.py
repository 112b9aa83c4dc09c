"""The optimizer: which weights decay, and its state by the names of the weights."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..core.errors import RunError
from ..runs.training import AdamW

MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # what torch's AdamW remembers of a weight


def adamw(model: nn.Module, settings: AdamW) -> torch.optim.AdamW:
    """Matrices decay; biases, gains and other vectors do not: they have no scale to keep in check.

    What an edit has frozen is left alone.
    """
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    groups = [
        {"params": [w for w in weights if w.dim() >= 2], "weight_decay": settings.decay},
        {"params": [w for w in weights if w.dim() < 2], "weight_decay": 0.0},
    ]
    fused = all(w.device.type in {"cpu", "cuda", "mps", "xpu"} for w in weights)
    betas = (settings.beta1, settings.beta2)
    return torch.optim.AdamW(groups, lr=settings.lr, betas=betas, eps=settings.eps, fused=fused)


def optimizer_state(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """What the optimizer remembers, as plain tensors."""
    return {
        f"{moment}.{name}": optimizer.state[weight][moment]
        for name, weight in model.named_parameters()
        if weight in optimizer.state
        for moment in MOMENTS
    }


def load_optimizer_state(optimizer: torch.optim.Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Give an optimizer back what `optimizer_state` took from it."""
    for name, weight in model.named_parameters():
        names = [f"{moment}.{name}" for moment in MOMENTS]
        found = [part for part in names if part in tensors]
        if found and found != names:
            raise RunError(f"the optimizer's state of {name} is not whole: it has {found}, needed are {names}")
        for moment, part in zip(MOMENTS, found, strict=False):
            optimizer.state[weight][moment] = tensors[part].clone().to(weight.device)
