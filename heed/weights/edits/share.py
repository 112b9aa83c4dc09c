"""Sharing across layers: few blocks, run again and again."""

from __future__ import annotations

from typing import Literal

from torch import nn

from ...core.config import Size
from ...core.errors import ConfigError
from ...models.block import Block
from ...models.stack import Stack
from .base import Edit, Patterns


class Share(Edit):
    """Blocks are used at several depths: as deep as before, with the weights of a few (Lan et al. 2020, ALBERT).

    `groups` runs each block so many times before the next one, `cycle` all of them in turn (Dehghani et al. 2019). What
    is remembered is still remembered at every depth. A new model may say the same by the `order` of its stack.
    """

    kind: Literal["share"] = "share"
    on: Patterns = ("*stack",)  # stacks, by name
    blocks: Size = 1  # that keep weights of their own
    turns: Literal["groups", "cycle"] = "groups"  # each block several times before the next one, or all of them in turn

    def apply(self, model: nn.Module) -> None:
        stacks = {name: module for name, module in model.named_modules() if isinstance(module, Stack)}
        for name in self.chosen(stacks, "stack"):
            self._share(name, stacks[name])

    def _share(self, name: str, stack: Stack) -> None:
        layers = stack.layers
        depth = len(layers)
        if self.blocks > depth:
            raise ConfigError(
                f"{name} has {depth} layers, which cannot share {self.blocks} blocks; use at most {depth}"
            )
        order = [
            layer * self.blocks // depth if self.turns == "groups" else layer % self.blocks for layer in range(depth)
        ]
        first = [order.index(block) for block in range(self.blocks)]
        for layer, block in enumerate(order):
            if _kind(layers[layer]) != _kind(layers[first[block]]):
                raise ConfigError(
                    f"layers {first[block]} and {layer} of {name} are not made alike, so they cannot share a block; "
                    "choose blocks and turns by what the layers are made of"
                )
        stack.blocks = nn.ModuleList(layers[layer] for layer in first)
        stack.order = tuple(order)


def _kind(block: Block) -> tuple[object, ...]:
    """What two blocks must have in common to stand for one another."""
    kinds = tuple((name, type(module)) for name, module in block.named_modules())
    shapes = tuple((name, tuple(tensor.shape)) for name, tensor in block.state_dict().items())
    return kinds, shapes, block.spec(), block.reach
