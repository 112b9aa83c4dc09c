"""Blocks, stacks and the three shapes (encoder, decoder, encoder-decoder), and one file per architecture.

`MODELS` is the table of shapes; `ARCHITECTURES` are functions from a few numbers to the configuration of a shape.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.config import Config
from ..core.contract import Mixer
from .block import Block as Block
from .decoder import Decoder as Decoder
from .encoder import Encoder as Encoder
from .seq2seq import Seq2seq as Seq2seq
from .stack import Stack as Stack
from .transformer import transformer as transformer

MODELS: tuple[type[Config], ...] = (Encoder.Config, Decoder.Config, Seq2seq.Config)
ARCHITECTURES: dict[str, Callable[..., Any]] = {"transformer": transformer}


def build(config: Encoder.Config | Decoder.Config | Seq2seq.Config) -> Mixer[Any]:
    """The model that a configuration describes, with fresh weights."""
    return config.build()
