"""What a model of a loaded checkpoint gives for a golden folder's inputs, by the shape of the model."""

from __future__ import annotations

from functools import partial

from ....core.errors import WeightsError
from ....models import (
    AudioEncoder,
    ClipModel,
    ClipTextEncoder,
    Decoder,
    Encoder,
    Funnel,
    Seq2seq,
    Swin,
    VisionEncoder,
    XLNet,
    XLNetEncoder,
)
from ...families.base import Opened
from ...families.big_bird import BigBird
from ...families.longformer import Longformer
from ...families.longt5 import LongT5
from ...families.mamba import Mamba
from ...families.reformer import Reformer
from ...families.rwkv import Rwkv
from ...families.xlnet import XLNet as XLNetFamily
from ...formats.folder import Folder
from ..inputs import Outputs
from . import (
    blocked,
    decoder,
    encoder,
    funnel,
    longformer,
    longt5,
    recurrent,
    reformer,
    seq2seq,
    speech,
    unmasked,
    vision,
    xlnet,
)
from .encoder import chosen


def outputs(opened: Opened, folder: Folder) -> Outputs:
    """Everything that can be computed from the inputs, under the names that references give it."""
    match opened.model:
        case XLNet() | XLNetEncoder() if isinstance(opened.family, XLNetFamily):
            return xlnet.outputs(opened.model, opened.family, folder)
        case Decoder() | Encoder() if isinstance(opened.family, Reformer):
            return reformer.outputs(opened.model, opened.family, folder)
        case Decoder() if isinstance(opened.family, Rwkv | Mamba):
            return recurrent.outputs(opened.model, opened.family, folder)
        case Decoder():
            return decoder.outputs(opened.model, opened.family, folder)
        case Encoder() if isinstance(opened.family, BigBird):
            return blocked.outputs(opened.family, folder)
        case Encoder() if isinstance(opened.family, unmasked.UNMASKED):
            return chosen(folder, partial(unmasked.outputs, opened.model, opened.family))
        case Encoder() | Seq2seq() if isinstance(opened.family, LongT5):
            return longt5.outputs(opened.model, opened.family, folder)
        case Encoder() if isinstance(opened.family, Longformer):
            return longformer.outputs(opened.model, opened.family, folder)
        case Funnel():
            return funnel.outputs(opened.model, folder)
        case Encoder():
            return chosen(folder, partial(encoder.outputs, opened.model, opened.family))
        case Seq2seq(encoder=AudioEncoder() as audio):
            return speech.transcribed(opened.model, audio, opened.family, folder)
        case AudioEncoder():
            return speech.heard(opened.model, opened.family, folder)
        case Seq2seq():
            return seq2seq.outputs(opened.model, opened.family, folder)
        case Swin() | ClipTextEncoder() | ClipModel() | VisionEncoder():
            return vision.outputs(opened.model, folder)
        case model:
            raise WeightsError(f"{folder.path}: heed has no replay for a {type(model).__name__}")
