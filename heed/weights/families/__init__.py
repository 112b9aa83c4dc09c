"""One file per family of checkpoints. `FAMILIES` is the table: loading, export, replay, the catalogue work from it."""

from __future__ import annotations

from difflib import get_close_matches

from ...core.errors import WeightsError
from .. import rounded
from ..checkpoint import Checkpoint
from ..family import Family, Opened, read
from .albert import Albert
from .bart import Bart, MBart
from .bert import Bert
from .big_bird import BigBird
from .bitnet import BitNet
from .bloom import Bloom
from .clip import CLIP, ClipText, ClipVision
from .deberta_v2 import DebertaV2
from .deepseek_v3 import DeepseekV3
from .distilbert import DistilBert
from .electra import Electra
from .falcon import Falcon
from .fnet import FNet
from .funnel import Funnel
from .gemma2 import Gemma, Gemma2
from .gpt2 import GPT2
from .gpt_bigcode import GPTBigCode
from .gpt_neo import GPTNeo
from .gpt_neox import GPTNeoX
from .gptj import GPTJ
from .layoutlm import LayoutLM
from .llama import Llama
from .longformer import Longformer
from .longt5 import LongT5
from .mamba import Mamba
from .marian import Marian, Pegasus
from .mistral import Mistral
from .mixtral import Mixtral
from .mpnet import MPNet
from .mpt import Mpt
from .nystromformer import Nystromformer
from .opt import OPT
from .phi3 import Phi3
from .qwen2 import Qwen2, Qwen2Moe
from .qwen3 import Qwen3, Qwen3Moe
from .reformer import Reformer
from .roberta import Roberta
from .roformer import RoFormer
from .rwkv import Rwkv
from .swin import Swin
from .switch_transformers import SwitchTransformers
from .t5 import MT5, T5, UMT5
from .transfo_xl import TransfoXL
from .vit import DeiT, ViT
from .wav2vec2 import Hubert, Wav2Vec2
from .whisper import Whisper
from .xlnet import XLNet
from .yoso import Yoso

FAMILIES: tuple[type[Family], ...] = (
    Albert,
    Bart,
    Bert,
    BigBird,
    BitNet,
    Bloom,
    CLIP,
    ClipText,
    ClipVision,
    DebertaV2,
    DeepseekV3,
    DeiT,
    DistilBert,
    Electra,
    Falcon,
    FNet,
    Funnel,
    Gemma,
    Gemma2,
    GPT2,
    GPTBigCode,
    GPTJ,
    GPTNeo,
    GPTNeoX,
    Hubert,
    LayoutLM,
    Llama,
    Longformer,
    LongT5,
    Mamba,
    Marian,
    MBart,
    MPNet,
    Mistral,
    Mixtral,
    Mpt,
    MT5,
    Nystromformer,
    OPT,
    Pegasus,
    Phi3,
    Qwen2,
    Qwen2Moe,
    Qwen3,
    Qwen3Moe,
    Reformer,
    Roberta,
    RoFormer,
    Rwkv,
    Swin,
    SwitchTransformers,
    T5,
    TransfoXL,
    UMT5,
    ViT,
    Wav2Vec2,
    Whisper,
    XLNet,
    Yoso,
)


def open_(checkpoint: Checkpoint) -> Opened:
    """The model of a checkpoint, by the model_type of its config."""
    if checkpoint.config.get("model_type") == rounded.OWN:
        theirs = rounded.theirs(checkpoint)
        return rounded.read(kind_of(theirs), theirs.config, checkpoint)
    return read(kind_of(checkpoint), checkpoint)


def kind_of(checkpoint: Checkpoint) -> type[Family]:
    """The family of a checkpoint."""
    known = {name: family for family in FAMILIES for name in family.types}
    name = checkpoint.config.get("model_type")
    if not isinstance(name, str):
        raise WeightsError(f"{checkpoint.place}: its config must name its model_type as a text, it has {name!r}")
    if name in known:
        return known[name]
    near = ", ".join(get_close_matches(name, known, 3))
    raise WeightsError(
        f"{checkpoint.place} holds a {name!r} model, which heed cannot load; "
        + (f"near names: {near}; " if near else "")
        + f"it loads {', '.join(sorted(known))}"
    )
