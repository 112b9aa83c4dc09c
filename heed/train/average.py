"""Averaged weights (EMA, tail): what is evaluated and kept is often better as a mean over the last steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ..runs.training import Ema, Tail


class Average:
    """A running mean of a model's weights."""

    def __init__(self, model: nn.Module, how: Ema | Tail | None, steps: int) -> None:
        self._how, self._steps, self.taken = how, steps, 0
        self._weights = list(model.parameters())
        self._names = [name for name, _ in model.named_parameters()]
        self._mean = [] if how is None else [weight.detach().clone() for weight in self._weights]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take the weights of this step in, if it is one of those that count."""
        share = self._share(step)
        if share:
            torch._foreach_lerp_(self._mean, [weight.detach() for weight in self._weights], share)
            self.taken += 1

    def _share(self, step: int) -> float:
        """How much the newest weights count; 0 = not at all."""
        match self._how:
            case Ema(decay=decay):  # early on over fewer steps, so that the first weights are soon forgotten
                return 1 - min(decay, (1 + self.taken) / (10 + self.taken))
            case Tail(share=share, every=every):
                first = self._steps - max(1, int(share * self._steps))
                due = step == self._steps or (step > first and (step - first) % every == 0)
                return 1 / -((first - step) // every) if due else 0.0  # the first of the tail starts the mean anew
        return 0.0

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The model has the averaged weights meanwhile, once there are any."""
        if not self.taken:
            yield
            return
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def tensors(self) -> dict[str, Tensor]:
        """What is to be saved."""
        return dict(zip(self._names, self._mean, strict=True)) if self._mean else {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """What was saved."""
        for name, mean in zip(self._names, self._mean, strict=False):
            mean.copy_(tensors[name])

    @torch.no_grad()
    def _exchange(self) -> None:
        """The contents alone: weights that are spread over processes must stay the tensors that they are."""
        for weight, mean in zip(self._weights, self._mean, strict=True):
            own = weight.detach().clone()
            weight.copy_(mean)
            mean.copy_(own)
