"""One file per family of checkpoints. `FAMILIES` is the table: loading, export, replay, the catalogue work from it.

It holds every name that a config.json may give (model_type), so that a checkpoint imports only its own family.
"""

from __future__ import annotations

from difflib import get_close_matches

from ...core.errors import WeightsError
from ...core.tables import Table
from ..formats.checkpoint import OWN, Checkpoint
from .base import Family, Opened, read

FAMILIES: Table[type[Family]] = Table(
    __name__,
    {
        "albert": "albert:Albert",
        "arcee": "arcee:Arcee",
        "bart": "bart:Bart",
        "bert": "bert:Bert",
        "big_bird": "big_bird:BigBird",
        "bitnet": "bitnet:BitNet",
        "bloom": "bloom:Bloom",
        "clip": "clip:CLIP",
        "clip_text_model": "clip:ClipText",
        "clip_vision_model": "clip:ClipVision",
        "deberta-v2": "deberta_v2:DebertaV2",
        "deepseek_v3": "deepseek_v3:DeepseekV3",
        "deit": "vit:DeiT",
        "distilbert": "distilbert:DistilBert",
        "electra": "electra:Electra",
        "encoder-decoder": "encoder_decoder:EncoderDecoder",
        "falcon": "falcon:Falcon",
        "fnet": "fnet:FNet",
        "funnel": "funnel:Funnel",
        "gemma": "gemma2:Gemma",
        "gemma2": "gemma2:Gemma2",
        "gpt2": "gpt2:GPT2",
        "gpt_bigcode": "gpt_bigcode:GPTBigCode",
        "gptj": "gptj:GPTJ",
        "gpt_neo": "gpt_neo:GPTNeo",
        "gpt_neox": "gpt_neox:GPTNeoX",
        "hubert": "wav2vec2:Hubert",
        "layoutlm": "layoutlm:LayoutLM",
        "llama": "llama:Llama",
        "longformer": "longformer:Longformer",
        "longt5": "longt5:LongT5",
        "mamba": "mamba:Mamba",
        "marian": "marian:Marian",
        "mbart": "bart:MBart",
        "mpnet": "mpnet:MPNet",
        "mistral": "mistral:Mistral",
        "mixtral": "mixtral:Mixtral",
        "mpt": "mpt:Mpt",
        "mt5": "t5:MT5",
        "nystromformer": "nystromformer:Nystromformer",
        "opt": "opt:OPT",
        "pegasus": "marian:Pegasus",
        "phi3": "phi3:Phi3",
        "qwen2": "qwen2:Qwen2",
        "qwen2_moe": "qwen2:Qwen2Moe",
        "qwen3": "qwen3:Qwen3",
        "qwen3_moe": "qwen3:Qwen3Moe",
        "reformer": "reformer:Reformer",
        "roberta": "roberta:Roberta",
        "xlm-roberta": "roberta:Roberta",
        "camembert": "roberta:Roberta",
        "roformer": "roformer:RoFormer",
        "rwkv": "rwkv:Rwkv",
        "swin": "swin:Swin",
        "switch_transformers": "switch_transformers:SwitchTransformers",
        "t5": "t5:T5",
        "transfo-xl": "transfo_xl:TransfoXL",
        "umt5": "t5:UMT5",
        "vit": "vit:ViT",
        "wav2vec2": "wav2vec2:Wav2Vec2",
        "whisper": "whisper:Whisper",
        "xlnet": "xlnet:XLNet",
        "yoso": "yoso:Yoso",
    },
)


def open_(checkpoint: Checkpoint) -> Opened:
    """The model of a checkpoint, by the model_type of its config."""
    if checkpoint.config.get("model_type") == OWN:
        from ..formats import quantised  # only such checkpoints need it

        theirs = quantised.theirs(checkpoint)
        return quantised.read(kind_of(theirs), theirs.config, checkpoint)
    return read(kind_of(checkpoint), checkpoint)


def kind_of(checkpoint: Checkpoint) -> type[Family]:
    """The family of a checkpoint."""
    known, name = FAMILIES.named, checkpoint.config.get("model_type")
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
