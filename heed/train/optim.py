"""The optimizer: which weights learn, how fast, which of them decay, and its state by the names of the weights."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..core.errors import ConfigError, RunError
from ..runs.training import Training
from ..weights.edits.base import near_names
from ..weights.formats.safetensors import Tensors

MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # what torch's AdamW remembers of a weight
RATE = "rate"  # of a group of the optimizer: what the learning rate is multiplied by
BLOCK = re.compile(r"(?P<stack>.*?)blocks\.(?P<block>\d+)\.")


class Pace(NamedTuple):
    """How a weight learns. Weights of one pace are one group of the optimizer."""

    rate: float  # what the learning rate is multiplied by
    decay: float  # weight decay


def freeze(model: nn.Module, patterns: Sequence[str]) -> None:
    """Let the weights that are named stay as they are."""
    names = dict(model.named_parameters())
    _must_name_some("training.freeze", patterns, names)
    for name, weight in names.items():
        if _fits(name, patterns):
            weight.requires_grad_(False)
    if patterns and not any(weight.requires_grad for weight in names.values()):
        raise ConfigError(f"training.freeze = {list(patterns)} leaves nothing to learn; name fewer weights")


def paces(model: nn.Module, settings: Training) -> dict[str, Pace]:
    """How every weight that learns does so, by name.

    Matrices decay; biases, gains and other vectors do not: they have no scale to keep in check. With a `layer_decay` d
    what stands above the blocks learns at the full rate, the last of n blocks at d, the first at dⁿ, and what the
    blocks read at dⁿ⁺¹ (Clark et al. 2020, ELECTRA; Howard & Ruder 2018, discriminative fine-tuning).
    """
    learning = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    for number, group in enumerate(settings.groups):
        _must_name_some(f"training.groups.{number}.on", group.on, learning)
    depths = _depths(model)
    found: dict[str, Pace] = {}
    for name, weight in learning.items():
        own = next((group for group in settings.groups if _fits(name, group.on)), None)
        decay = settings.optimizer.decay if weight.dim() >= 2 else 0.0
        rate = settings.layer_decay ** _below_the_top(name, depths)
        if own is not None:
            rate *= own.rate
            decay = decay if own.decay is None else own.decay
        found[name] = Pace(rate, decay)
    return found


def _depths(model: nn.Module) -> dict[str, int]:
    """How many blocks each stack has, by what its blocks are called before their number."""
    found: dict[str, int] = {}
    for name, _ in model.named_parameters(remove_duplicate=False):
        if (place := BLOCK.match(name)) is not None:
            found[place["stack"]] = max(found.get(place["stack"], 0), int(place["block"]) + 1)
    return found


def _below_the_top(name: str, depths: Mapping[str, int]) -> int:
    """How many steps a weight stands below the heads."""
    if (place := BLOCK.match(name)) is not None:
        return depths[place["stack"]] - int(place["block"])
    if "embeddings" in name.split("."):
        return max(depths.values(), default=0) + 1
    return 0


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _must_name_some(field: str, patterns: Sequence[str], names: Mapping[str, Tensor]) -> None:
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ConfigError(
                f"{field} = {pattern!r} names no weight of this model that learns{near_names(pattern, list(names))}"
            )


def adamw(model: nn.Module, settings: Training) -> torch.optim.AdamW:
    """AdamW over the weights that learn, in groups of one pace each. What an edit has frozen is left alone."""
    own, weights = settings.optimizer, dict(model.named_parameters())
    groups: dict[Pace, list[Tensor]] = {}
    for name, pace in paces(model, settings).items():
        groups.setdefault(pace, []).append(weights[name])
    told = [{"params": held, "weight_decay": pace.decay, RATE: pace.rate} for pace, held in groups.items() if held]
    fused = all(w.device.type in {"cpu", "cuda", "mps", "xpu"} for held in groups.values() for w in held)
    return torch.optim.AdamW(told, lr=own.lr, betas=(own.beta1, own.beta2), eps=own.eps, fused=fused)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Let every group learn at its share of this rate."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group[RATE]


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


def empty_optimizer_state(optimizer: torch.optim.Optimizer, model: nn.Module, held: Tensors) -> dict[str, Tensor]:
    """What `held` has of an optimizer's state, as zeros to be read into."""
    step, *means = MOMENTS
    for name, weight in model.named_parameters():
        if f"{step}.{name}" in held:
            count = torch.zeros((), dtype=held.like(f"{step}.{name}").dtype, device=weight.device)
            optimizer.state[weight] = {step: count, **{mean: torch.zeros_like(weight.detach()) for mean in means}}
    return optimizer_state(optimizer, model)
