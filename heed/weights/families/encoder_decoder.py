"""Encoder-decoders that were put together of two checkpoints (Rothe et al. 2020): BERT to BERT, RoBERTa to GPT-2 ...

Each half has a config of its own, below `encoder` and `decoder`, and its own tensors, which begin with these words.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from ...core.errors import ConfigError, WeightsError
from ...models import Encoder, Seq2seq
from ..formats.checkpoint import Checkpoint
from ..formats.safetensors import Below, Held, Tensors
from ..rename import Table, both, inside
from . import kind_of
from .base import Family
from .encoder_decoders import SecondHalf, TwoSided

PROJECTION = "enc_to_dec_proj"


class EncoderDecoder(TwoSided):
    """`EncoderDecoderModel` of transformers: an encoder, and a language model with a cross-attention to its output.

    Where the halves are not equally wide, a linear layer stands between them.
    """

    types: ClassVar[tuple[str, ...]] = ("encoder-decoder",)
    paper: ClassVar[str] = "Rothe et al. 2020, Leveraging Pre-trained Checkpoints, arXiv 1907.12461"

    encoder: dict[str, Any]
    decoder: dict[str, Any]

    @property
    def layers(self) -> int:
        return self._half("encoder").layers + self._half("decoder").layers

    def ours(self, tensors: Tensors) -> Seq2seq.Config:
        source = self._half("encoder").ours(Below(tensors, "encoder."))
        if not isinstance(source, Encoder.Config):
            raise ConfigError(
                f"its encoder is {self.encoder.get('model_type')!r}, which is none as it is configured; needed is one "
                "that reads a text: bert, roberta, distilbert, albert, electra, longformer ..."
            )
        second = self._half("decoder")
        if not isinstance(second, SecondHalf):
            raise ConfigError(
                f"its decoder is {self.decoder.get('model_type')!r}; heed knows the cross-attention of bert, roberta, "
                "roformer, electra and gpt2"
            )
        target = second.second_half(Below(tensors, "decoder."))
        projected = f"{PROJECTION}.weight" in tensors
        if source.width != target.width and not projected:
            raise ConfigError(
                f"its encoder is {source.width} wide and its decoder {target.width}: needed is {PROJECTION}.weight"
            )
        return Seq2seq.Config(encoder=source, decoder=target, projected=projected)

    def names(self, tensors: Tensors) -> Table:
        halves = (
            rule
            for half in ("encoder", "decoder")
            for rule in inside(self._half(half).names(Below(tensors, f"{half}.")), f"{half}.", f"{half}.")
        )
        return *halves, *both(PROJECTION, "projection")

    def _half(self, which: str) -> Family:
        config = self.encoder if which == "encoder" else self.decoder
        try:
            kind = kind_of(Checkpoint(Path(f"its {which}"), config, Held({})))
            if issubclass(kind, EncoderDecoder):
                raise ConfigError(f"its {which} is an encoder-decoder itself; needed is a model of one side")
            return kind.load(config)
        except WeightsError as error:
            raise ConfigError(str(error)) from None
