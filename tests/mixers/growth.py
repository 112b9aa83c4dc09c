"""How large the largest tensor of a call is: a mechanism that promises less than n² must not hold as much anywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from heed.core.contract import MixerConfig, Where


class Largest(TorchDispatchMode):
    """Remembers the size of the largest tensor made."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **kwargs or {})
        for one in made if isinstance(made, Sequence) else (made,):
            if isinstance(one, Tensor):
                self.numbers = max(self.numbers, one.untyped_storage().nbytes() // one.element_size())
        return made


def grows(config: MixerConfig, short: int = 300, times: int = 4) -> float:
    """By how much the largest tensor of a call, gradient included, grows when the text grows `times` as long."""
    torch.manual_seed(0)
    mixer, sizes = config.build(24), []
    for tokens in (short, times * short):
        x = torch.randn(1, tokens, 24, requires_grad=True)
        with Largest() as most:
            mixer(x, Where.run(1, tokens))[0].sum().backward()
        sizes.append(most.numbers)
    return sizes[1] / sizes[0]


def held(call: Callable[[], object]) -> list[int]:
    """How many numbers each tensor has that a call keeps for its gradient."""
    sizes: list[int] = []

    def kept(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(kept, lambda tensor: tensor):
        call()
    return sizes
