"""Writes blocks into a program: every part by its emitter, which the table names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from ...kernels.abi import Matrix, Mode, Weights
from ...kernels.linear import matrix
from ..program import ProgramBuilder, must
from .table import ADDED, BLOCK, EMBEDDINGS, LINEARS, MASKS, NORMS, PARTS, POSITIONS, WIRINGS, emitter_of, must_be

if TYPE_CHECKING:
    from ...core.contract import Mixer
    from ...mixers import Attention, Cross
    from ...models.block import Block
    from ...parts.inputs.tokens import TokenEmbeddings
    from ...parts.layers.linear import LinearLike


class Emitter:
    """Writes blocks for one token per row, which sees what its row remembers.

    It points to parameters and copies none: a program may outlive their values (`engine/cache.py`).
    """

    token_by_token = True  # recurrences are run one token after the other

    def __init__(self) -> None:
        self.builder = ProgramBuilder()

    # --- what emitters call ---

    def block(self, block: Block, stream: int) -> None:
        """A block, as its wiring has it."""
        must_be(block, BLOCK)
        emitter_of(WIRINGS, block.wiring)(self, block.wiring, block.parts, stream)

    def part(self, part: Mixer[Any], source: int, target: int, old: float = 1.0) -> None:
        """target = old · target + part(source)."""
        emitter_of(PARTS, part)(self, part, source, target, old)

    def norm(self, norm: nn.Module, source: int, target: int, groups: int = 1) -> None:
        """target = norm(source), or a norm of each of so many groups of channels."""
        emitter_of(NORMS, norm)(self, norm, source, target, groups)

    def position(self, code: nn.Module, size: int, registers: Iterable[tuple[int, int]]) -> Tensor | None:
        """Registers of so many heads are turned by a code; or scores fall, by the slopes that this gives."""
        slopes: Tensor | None = emitter_of(POSITIONS, code)(self, code, size, registers)
        return slopes

    def added(self, code: nn.Module, stream: int) -> int:
        """A position code that is added to the stream. Gives how many places are read from a table."""
        return cast(int, emitter_of(ADDED, code)(self, code, stream))

    def embeddings(self, embeddings: TokenEmbeddings, width: int) -> tuple[int, int]:
        """The register of the stream of tokens, and how many places are read from a table."""
        return cast("tuple[int, int]", emitter_of(EMBEDDINGS, embeddings)(self, embeddings, width))

    def table(self, table: nn.Embedding, stream: int, scale: float) -> None:
        """A row of a table for every token."""
        emitter_of(EMBEDDINGS, table)(self, table, stream, scale)

    def reach(self, part: Attention) -> tuple[int, int]:
        """How far back and ahead tokens see, by their mask; -1: any distance."""
        return cast("tuple[int, int]", emitter_of(MASKS, part.mask)(part.mask))

    def like(self, register: int, name: str) -> int:
        """A register as wide as another one."""
        return self.builder.register(name, self.builder.widths[register])

    def product(self, layer: nn.Linear | LinearLike, source: int, name: str, activation: str = "identity") -> int:
        """A register with activation(layer(source))."""
        target = self.builder.register(name, layer.out_features)
        self.multiply(layer, source, target, activation=activation)
        return target

    def settle(self, layer: nn.Linear | LinearLike, source: int, target: int, old: float) -> None:
        """target = old · target + layer(source)."""
        self.multiply(layer, source, target, Mode.PLUS if old else Mode.SET, old=old)

    def multiply(
        self,
        layer: nn.Linear | LinearLike,
        source: int,
        target: int,
        mode: Mode = Mode.SET,
        activation: str = "identity",
        old: float = 1.0,
    ) -> None:
        """activation(layer(source)) is target, is added to it or multiplied with it."""
        read, source = emitter_of(LINEARS, layer)(self, layer, source)
        self.builder.linear(read, target, source, mode, activation, old)

    # --- what differs between a step and a pass ---

    def sight(self, part: Attention) -> tuple[int, int]:
        """The KV cache that tokens look at, and how far back; -1: any distance."""
        back, ahead = self.reach(part)
        must(ahead == 0, part.mask, "tokens see ahead")
        return self.builder.cache(), back

    def entry(self, name: str) -> str:
        """What the register of a layer's keys or values is called."""
        return name

    def attended(self, part: Attention | Cross, key: int, value: int) -> None:
        """These registers were looked at: what is remembered of a step is in its KV cache already."""

    def float32(self, layer: nn.Linear) -> Matrix:
        """A matrix of float32. One that is stored the other way round is, from now on, as it is read."""
        numbers: tuple[Tensor | None, ...] = (layer.weight, layer.bias)  # torch does not say that a bias may be None
        must(all(tensor is None or tensor.dtype == torch.float32 for tensor in numbers), layer, "not float32")
        if not layer.weight.is_contiguous():
            layer.weight.data = layer.weight.data.contiguous()
        self.builder.keep(layer.weight), self.builder.keep(layer.bias)
        return matrix(Weights.FLOAT32, layer.weight, None, layer.bias, layer.out_features, layer.in_features)
