"""FNet (Lee-Thorp et al. 2021): BERT with a Fourier transform in the place of attention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch

from ...core.config import Count, Flag, Size
from ...core.contract import MixerConfig
from ...mixers import Fourier
from ...parts.inputs.tokens import Narrow
from ..formats.safetensors import Tensors
from ..rename import Computed, Table, both
from .base import Act, prefix
from .bert import Bert
from .encoders import embedded, norms


class FNet(Bert):
    """FNet, with any of its heads or none. What is done for a TPU changes how it is computed, but not what."""

    types: ClassVar[tuple[str, ...]] = ("fnet",)
    paper: ClassVar[str] = "Lee-Thorp et al. 2021, arXiv 2105.03824"
    stem: ClassVar[str] = "fnet."
    decodes: ClassVar[bool] = False

    vocab_size: Size = 32000
    hidden_act: Act = "gelu_tanh"
    type_vocab_size: Count = 4
    use_tpu_fourier_optimizations: Flag = False

    @property
    def mixer(self) -> MixerConfig:
        return Fourier.Config()

    @property
    def narrow(self) -> Narrow | None:
        return Narrow(size=self.hidden_size)  # no narrower than the stream, but projected all the same

    def names(self, tensors: Tensors) -> Table:
        theirs, ours = prefix(tensors, self.stem), "stack.blocks.{i}"
        layer = f"{theirs}encoder.layer.{{i}}"
        return (
            *embedded(f"{theirs}embeddings"),
            *both(f"{theirs}embeddings.projection", "embeddings.narrow"),
            *norms(f"{layer}.fourier.output.LayerNorm", f"{ours}.wiring.norms.0"),
            *both(f"{layer}.intermediate.dense", f"{ours}.feedforward.up"),
            *both(f"{layer}.output.dense", f"{ours}.feedforward.down"),
            *norms(f"{layer}.output.LayerNorm", f"{ours}.wiring.norms.1"),
            *self._matrices(tensors, theirs),
            *self.answers(tensors),
        )

    def _matrices(self, tensors: Tensors, theirs: str) -> Iterator[Computed]:
        """The transforms written out, which checkpoints for a TPU hold in every layer: of channels and of tokens."""
        for axis in ("hidden", "seq"):
            name = f"{theirs}encoder.layer.{{i}}.fourier.self.dft_mat_{axis}"
            if (first := name.format(i=0)) in tensors:
                size = self.hidden_size if axis == "hidden" else max(tensors.like(first).shape, default=1)
                matrix = torch.fft.fft(torch.eye(size, dtype=torch.float64)).to(torch.complex64)
                yield Computed(name, "stack.blocks.{i}.wiring.norms.0.weight", matrix)
