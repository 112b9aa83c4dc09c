"""Blocks, stacks and the three shapes (encoder, decoder, encoder-decoder), and one file per architecture.

`MODELS` is the table of shapes over tokens, `SENSES` that of models of images and sounds; `ARCHITECTURES` is the table
of plans that give the configuration of a shape from a few numbers. A shape or a plan may stand in the place of a model
in a recipe.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from ..core.config import OneOf
from ..core.contract import Mixer
from .adaptive import AdaptiveDecoder as AdaptiveDecoder
from .bert import Bert as Bert
from .block import Block as Block
from .crate import Crate as Crate
from .decoder import Decoder as Decoder
from .decoder_only import TransformerDecoder as TransformerDecoder
from .deep import Deep as Deep
from .deepnet import DeepNet as DeepNet
from .deepnet import DeepNetDecoder as DeepNetDecoder
from .deepnet import ResiDualTransformer as ResiDualTransformer
from .elmo import Elmo as Elmo
from .elmo import ElmoReader as ElmoReader
from .embedded import AnyModel as AnyModel
from .embedded import Embedded as Embedded
from .embedded import familiar as familiar
from .encoder import Encoder as Encoder
from .flash import Flash as Flash
from .funnel import Funnel as Funnel
from .listener import Listener as Listener
from .lite import LiteTransformer as LiteTransformer
from .mamba import MambaDecoder as MambaDecoder
from .overlapped import Overlapped as Overlapped
from .retnet import RetNet as RetNet
from .retro import Retro as Retro
from .rmt import RMT as RMT
from .rwkv import RWKV as RWKV
from .seq2seq import Seq2seq as Seq2seq
from .shape import Plan as Plan
from .shape import Shape as Shape
from .stack import Stack as Stack
from .swin import Swin as Swin
from .towers import TextTower as TextTower
from .towers import Towers as Towers
from .transformer import Transformer as Transformer
from .transformer import transformer as transformer
from .unlimited import unlimited as unlimited
from .viewer import Viewer as Viewer
from .xl import TransformerXL as TransformerXL
from .xlnet import XLNet as XLNet
from .xlnet import XLNetReader as XLNetReader
from .yoco import Yoco as Yoco

MODELS: tuple[type[Shape], ...] = (Encoder.Config, Decoder.Config, Seq2seq.Config)
MODELS += (Overlapped.Config, RMT.Config, AdaptiveDecoder.Config, XLNet.Config, XLNetReader.Config)
MODELS += (Deep.Config, Retro.Config, Funnel.Config)
MODELS += (Elmo.Config, ElmoReader.Config)
MODELS += (Yoco.Config,)
SENSES: tuple[type[Shape], ...] = (Viewer.Config, Swin.Config, Towers.Config, Listener.Config)
ARCHITECTURES: tuple[type[Plan], ...] = (TransformerDecoder, Transformer, TransformerXL)
ARCHITECTURES += (Bert, DeepNet, DeepNetDecoder, ResiDualTransformer)
ARCHITECTURES += (RetNet, Flash)
ARCHITECTURES += (RWKV, MambaDecoder)
ARCHITECTURES += (LiteTransformer, Crate)

AnyPlan: TypeAlias = Annotated[Plan, OneOf(lambda: (*MODELS, *ARCHITECTURES))]


def build(config: Shape) -> Mixer[Any]:
    """The model that a configuration describes, with fresh weights."""
    return config.build()
