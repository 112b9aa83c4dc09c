"""Models: blocks, stacks, encoder, decoder and encoder-decoder, and one file per architecture.

`MODELS` is the table of shapes over tokens, `MULTIMODAL` that of models of images and audio; `ARCHITECTURES` is the
table of plans that give the configuration of a shape from a few numbers. A shape or a plan may stand in the place of a
model in a recipe. A class is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from ..core.config import OneOf
from ..core.contract import Mixer
from ..core.errors import ConfigError
from ..core.tables import Table, later
from .plan import Plan as Plan
from .plan import Shape as Shape

MODELS: Table[type[Shape]] = Table(
    __name__,
    {
        "encoder": "encoder:Encoder.Config",
        "decoder": "decoder:Decoder.Config",
        "seq2seq": "seq2seq:Seq2seq.Config",
        "sled_encoder": "variants.sled:SledEncoder.Config",
        "rmt": "variants.rmt:RMT.Config",
        "adaptive_decoder": "variants.adaptive:AdaptiveDecoder.Config",
        "xlnet": "variants.xlnet:XLNet.Config",
        "xlnet_encoder": "variants.xlnet:XLNetEncoder.Config",
        "deep": "variants.deep:DeepDecoder.Config",
        "retro": "variants.retro:Retro.Config",
        "funnel": "variants.funnel:Funnel.Config",
        "elmo": "variants.elmo:Elmo.Config",
        "elmo_encoder": "variants.elmo:ElmoEncoder.Config",
        "ngram_encoder": "variants.ngrams:NGramEncoder.Config",
        "yoco": "variants.yoco:Yoco.Config",
    },
    renamed={"overlapped": "sled_encoder", "xlnet_reader": "xlnet_encoder", "elmo_reader": "elmo_encoder"},
)
MULTIMODAL: Table[type[Shape]] = Table(
    __name__,
    {
        "vision": "multimodal.vision:VisionEncoder.Config",
        "swin": "multimodal.swin:Swin.Config",
        "convnet": "multimodal.convnet:ConvNet.Config",
        "clip": "multimodal.clip:ClipModel.Config",
        "audio": "multimodal.audio:AudioEncoder.Config",
    },
    renamed={"viewer": "vision", "towers": "clip", "listener": "audio"},
)
ENCODERS_OF_CLIP: Table[type[Shape]] = Table(  # one of two, as some checkpoints hold it
    __name__, {"clip_text": "multimodal.clip:ClipTextEncoder.Config"}, renamed={"text_tower": "clip_text"}
)
ARCHITECTURES: Table[type[Plan]] = Table(
    __name__,
    {
        "transformer_decoder": "architectures.transformer_decoder:TransformerDecoder",
        "transformer": "architectures.transformer:Transformer",
        "transformer_xl": "architectures.transformer_xl:TransformerXL",
        "bert": "architectures.bert:Bert",
        "gpt2": "architectures.gpt2:GPT2",
        "t5": "architectures.t5:T5",
        "vit": "architectures.vit:ViT",
        "electra": "architectures.electra:Electra",
        "deepnet": "architectures.deepnet:DeepNet",
        "deepnet_decoder": "architectures.deepnet:DeepNetDecoder",
        "residual_transformer": "architectures.deepnet:ResiDualTransformer",
        "retnet": "architectures.retnet:RetNet",
        "flash": "architectures.flash:Flash",
        "rwkv": "architectures.rwkv:RWKV",
        "mamba": "architectures.mamba:MambaDecoder",
        "lite_transformer": "architectures.lite_transformer:LiteTransformer",
        "crate": "architectures.crate:Crate",
        "whisper": "multimodal.whisper:Whisper",
        "wav2vec2": "multimodal.wav2vec2:Wav2Vec2",
    },
)

AnyPlan: TypeAlias = Annotated[Plan, OneOf(lambda: MODELS + MULTIMODAL + ARCHITECTURES)]

if TYPE_CHECKING:
    from .architectures.bert import Bert as Bert
    from .architectures.crate import Crate as Crate
    from .architectures.deepnet import DeepNet as DeepNet
    from .architectures.deepnet import DeepNetDecoder as DeepNetDecoder
    from .architectures.deepnet import ResiDualTransformer as ResiDualTransformer
    from .architectures.electra import Electra as Electra
    from .architectures.flash import Flash as Flash
    from .architectures.gpt2 import GPT2 as GPT2
    from .architectures.lite_transformer import LiteTransformer as LiteTransformer
    from .architectures.mamba import MambaDecoder as MambaDecoder
    from .architectures.retnet import RetNet as RetNet
    from .architectures.rwkv import RWKV as RWKV
    from .architectures.t5 import T5 as T5
    from .architectures.transformer import Transformer as Transformer
    from .architectures.transformer import transformer as transformer
    from .architectures.transformer_decoder import TransformerDecoder as TransformerDecoder
    from .architectures.transformer_xl import TransformerXL as TransformerXL
    from .architectures.vit import ViT as ViT
    from .block import Block as Block
    from .decoder import Decoder as Decoder
    from .embedded import AnyModel as AnyModel
    from .embedded import Embedded as Embedded
    from .embedded import familiar as familiar
    from .encoder import Encoder as Encoder
    from .multimodal.audio import AudioEncoder as AudioEncoder
    from .multimodal.clip import ClipModel as ClipModel
    from .multimodal.clip import ClipTextEncoder as ClipTextEncoder
    from .multimodal.convnet import ConvNet as ConvNet
    from .multimodal.swin import Swin as Swin
    from .multimodal.vision import VisionEncoder as VisionEncoder
    from .multimodal.wav2vec2 import Wav2Vec2 as Wav2Vec2
    from .multimodal.whisper import Whisper as Whisper
    from .seq2seq import Seq2seq as Seq2seq
    from .stack import Stack as Stack
    from .variants.adaptive import AdaptiveDecoder as AdaptiveDecoder
    from .variants.deep import DeepDecoder as DeepDecoder
    from .variants.elmo import Elmo as Elmo
    from .variants.elmo import ElmoEncoder as ElmoEncoder
    from .variants.funnel import Funnel as Funnel
    from .variants.ngrams import NGramEncoder as NGramEncoder
    from .variants.retro import Retro as Retro
    from .variants.rmt import RMT as RMT
    from .variants.sled import SledEncoder as SledEncoder
    from .variants.unlimiformer import unlimiformer as unlimiformer
    from .variants.xlnet import XLNet as XLNet
    from .variants.xlnet import XLNetEncoder as XLNetEncoder
    from .variants.yoco import Yoco as Yoco
else:
    __getattr__, __dir__ = later(
        __name__,
        {
            "Block": "block",
            "Stack": "stack",
            **dict.fromkeys(("AnyModel", "Embedded", "familiar"), "embedded"),
            "transformer": "architectures.transformer",
            "unlimiformer": "variants.unlimiformer",
        },
        *(MODELS, MULTIMODAL, ENCODERS_OF_CLIP, ARCHITECTURES),
        renamed={
            "Deep": "DeepDecoder",
            "ElmoReader": "ElmoEncoder",
            "Listener": "AudioEncoder",
            "Overlapped": "SledEncoder",
            "TextTower": "ClipTextEncoder",
            "Towers": "ClipModel",
            "Viewer": "VisionEncoder",
            "XLNetReader": "XLNetEncoder",
            "unlimited": "unlimiformer",
        },
    )

TOO_LARGE = ("can't allocate", "out of memory", "overflow", "Overflow")  # as torch says it of a tensor


def build(config: Shape) -> Mixer[Any]:
    """The model that a configuration describes, with fresh weights."""
    try:
        return config.build()
    except (RuntimeError, TypeError) as error:
        why = str(error).partition("\n")[0]
        if not any(word in why for word in TOO_LARGE):
            raise
        raise ConfigError(f"no model of these sizes can be made here; make it smaller (torch: {why})") from error
