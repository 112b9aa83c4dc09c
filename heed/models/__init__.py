"""Blocks, stacks and the three shapes (encoder, decoder, encoder-decoder), and one file per architecture.

`MODELS` is the table of shapes over tokens, `SENSES` that of models of images and sounds; `ARCHITECTURES` is the table
of plans that give the configuration of a shape from a few numbers. A shape or a plan may stand in the place of a model
in a recipe. What is not asked for is not imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from ..core.config import OneOf
from ..core.contract import Mixer
from ..core.tables import Table, later
from .shape import Plan as Plan
from .shape import Shape as Shape
from .transformer import transformer as transformer  # not later: a module is called so, too
from .unlimited import unlimited as unlimited

MODELS: Table[type[Shape]] = Table(
    __name__,
    {
        "encoder": "encoder.Encoder.Config",
        "decoder": "decoder.Decoder.Config",
        "seq2seq": "seq2seq.Seq2seq.Config",
        "overlapped": "overlapped.Overlapped.Config",
        "rmt": "rmt.RMT.Config",
        "adaptive_decoder": "adaptive.AdaptiveDecoder.Config",
        "xlnet": "xlnet.XLNet.Config",
        "xlnet_reader": "xlnet.XLNetReader.Config",
        "deep": "deep.Deep.Config",
        "retro": "retro.Retro.Config",
        "funnel": "funnel.Funnel.Config",
        "elmo": "elmo.Elmo.Config",
        "elmo_reader": "elmo.ElmoReader.Config",
        "yoco": "yoco.Yoco.Config",
    },
)
SENSES: Table[type[Shape]] = Table(
    __name__,
    {
        "viewer": "viewer.Viewer.Config",
        "swin": "swin.Swin.Config",
        "towers": "towers.Towers.Config",
        "listener": "listener.Listener.Config",
    },
)
TOWERS: Table[type[Shape]] = Table(  # one of two, as some checkpoints hold it
    __name__, {"text_tower": "towers.TextTower.Config"}
)
ARCHITECTURES: Table[type[Plan]] = Table(
    __name__,
    {
        "transformer_decoder": "decoder_only.TransformerDecoder",
        "transformer": "transformer.Transformer",
        "transformer_xl": "xl.TransformerXL",
        "bert": "bert.Bert",
        "deepnet": "deepnet.DeepNet",
        "deepnet_decoder": "deepnet.DeepNetDecoder",
        "residual_transformer": "deepnet.ResiDualTransformer",
        "retnet": "retnet.RetNet",
        "flash": "flash.Flash",
        "rwkv": "rwkv.RWKV",
        "mamba": "mamba.MambaDecoder",
        "lite_transformer": "lite.LiteTransformer",
        "crate": "crate.Crate",
    },
)

AnyPlan: TypeAlias = Annotated[Plan, OneOf(lambda: MODELS + ARCHITECTURES)]

if TYPE_CHECKING:
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
    from .stack import Stack as Stack
    from .swin import Swin as Swin
    from .towers import TextTower as TextTower
    from .towers import Towers as Towers
    from .transformer import Transformer as Transformer
    from .viewer import Viewer as Viewer
    from .xl import TransformerXL as TransformerXL
    from .xlnet import XLNet as XLNet
    from .xlnet import XLNetReader as XLNetReader
    from .yoco import Yoco as Yoco
else:
    __getattr__, __dir__ = later(
        __name__,
        {"Block": "block", "Stack": "stack", **dict.fromkeys(("AnyModel", "Embedded", "familiar"), "embedded")},
        *(MODELS, SENSES, TOWERS, ARCHITECTURES),
    )


def build(config: Shape) -> Mixer[Any]:
    """The model that a configuration describes, with fresh weights."""
    return config.build()
