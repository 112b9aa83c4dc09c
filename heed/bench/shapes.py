"""The models that are measured: sizes under the names of config.json, so that peers read the same checkpoint.

All weights are random: speed does not depend on them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from ..core.config import Data
    from ..core.contract import Mixer
    from ..models import Shape

Model: TypeAlias = Literal["gpt2", "llama", "bert", "transformer", "gpt-50k", "rwkv", "retnet", "bitnet", "small"]
MODELS: tuple[Model, ...] = get_args(Model)

LLAMA: Data = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
CONFIGS: dict[Model, Data] = {
    "gpt2": {  # small, 124M
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 12,
        "n_positions": 1024,
        "vocab_size": 50257,
        "bos_token_id": 50256,
        "eos_token_id": 50256,
    },
    "llama": LLAMA,
    "bitnet": LLAMA,
    "bert": {  # base, 110M
        "model_type": "bert",
        "architectures": ["BertModel"],
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "max_position_embeddings": 512,
        "vocab_size": 30522,
        "pad_token_id": 0,
    },
    "transformer": {  # base, as Marian has it; 32,000 tokens and the padding
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "d_model": 512,
        "encoder_layers": 6,
        "decoder_layers": 6,
        "encoder_attention_heads": 8,
        "decoder_attention_heads": 8,
        "encoder_ffn_dim": 2048,
        "decoder_ffn_dim": 2048,
        "activation_function": "relu",
        "scale_embedding": True,
        "static_position_embeddings": True,
        "max_position_embeddings": 512,
        "vocab_size": 32001,
        "pad_token_id": 32000,
        "decoder_start_token_id": 32000,
        "eos_token_id": 0,
        "dropout": 0.1,
        "attention_dropout": 0.1,
        "activation_dropout": 0.1,
    },
    "gpt-50k": {  # narrow, and most of its work is its vocabulary
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": 384,
        "n_layer": 6,
        "n_head": 6,
        "n_positions": 256,
        "vocab_size": 50257,
        "bos_token_id": 50256,
        "eos_token_id": 50256,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
        "resid_pdrop": 0.0,
    },
    "rwkv": {  # RWKV-4, 169M
        "model_type": "rwkv",
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "vocab_size": 50277,
        "rescale_every": 0,
    },
}
CONFIGS["small"] = {  # a Transformer that is trained on a laptop
    **CONFIGS["transformer"],
    "d_model": 256,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 1024,
    "decoder_ffn_dim": 1024,
    "vocab_size": 1000,
    "pad_token_id": 999,
    "decoder_start_token_id": 999,
}
PAIRS = ("transformer", "small")  # models of a source and a target
CONFIGS["retnet"] = CONFIGS["rwkv"]  # whose size it has, and whose package is its peer
PAIRED = 10_000  # tokens of each side's vocabulary where the base Transformer is trained

# Tensors whose names tell a family which form of its layout is meant.
TELLING: dict[str, tuple[str, ...]] = {
    "gpt2": ("transformer.wte.weight",),
    "llama": ("model.embed_tokens.weight", "lm_head.weight"),
    "bert": ("embeddings.word_embeddings.weight", "pooler.dense.weight"),
    "marian": ("model.shared.weight", "final_logits_bias"),
    "rwkv": ("emb.weight", "head.weight"),
}


def configured(model: Model, *, trained: bool) -> Data:
    """The config.json of a model."""
    last = PAIRED - 1
    small = {"vocab_size": PAIRED, "pad_token_id": last, "decoder_start_token_id": last}
    return {**CONFIGS[model], **(small if trained and model == "transformer" else {})}


def built(config: Data) -> Mixer[Any]:
    """heed's model with random weights."""
    import torch

    torch.manual_seed(0)
    return _told(config)[1].build()


def retnet(config: Data) -> Mixer[Any]:
    """RetNet with as many weights as this RWKV has, or nearly: one layer more, heads of 256."""
    import torch

    from ..models import RetNet

    torch.manual_seed(0)
    width, depth = config["hidden_size"], config["num_hidden_layers"] + 1
    sized = RetNet(width=width, depth=depth, heads=max(1, width // 256)).sized(config["vocab_size"])
    return sized.model_copy(update={"tied": False}).build()


def paired(config: Data) -> Mixer[Any]:
    """The base Transformer as torch.nn.Transformer has it, to be trained."""
    from ..models.architectures.transformer import TORCH, TransformerSize, transformer

    names = ("d_model", "encoder_layers", "encoder_attention_heads", "encoder_ffn_dim", "dropout")
    vocabulary = config["vocab_size"]
    return transformer(
        vocabulary, vocabulary, size=TransformerSize(*(config[name] for name in names)), variant=TORCH
    ).build()


def write(config: Data, folder: Path, *, weighs: bool) -> None:
    """A checkpoint with random weights and a vocabulary of numbers, as Hugging Face has it; or its config alone."""
    if not weighs:
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return
    import torch

    from .. import weights

    torch.manual_seed(0)
    family, chosen, names = _told(config)
    model = chosen.build()
    with torch.no_grad():
        for weight in model.parameters():  # vectors, too: what is all zeros or ones might be passed over
            if weight.dim() < 2:
                weight.add_(torch.randn_like(weight), alpha=0.01)
        if config["model_type"] == "marian":  # whose padding, which begins a target, is zero
            model.get_parameter("encoder.embeddings.table.weight")[config["pad_token_id"]] = 0
    weights.write(weights.Opened(family, model, family.names(names), config, {}, chosen), folder)
    _tokenizer(int(config["vocab_size"]), folder)


def _told(config: Data) -> tuple[Any, Shape, Any]:
    import torch

    from ..weights import FAMILIES
    from ..weights.formats.safetensors import Held

    name = config["model_type"]
    family = next(kind for kind in FAMILIES if name in kind.types).load(config)
    wide = torch.empty(1 << 20, device="meta")  # families ask whether any tensor is as wide as the config claims
    names = Held(dict.fromkeys(TELLING[name], wide))
    return family, family.ours(names), names


def _tokenizer(size: int, folder: Path) -> None:
    """Words that are numbers: peers that insist on a tokenizer find one."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    made = Tokenizer(WordLevel({str(number): number for number in range(size)}, unk_token="1"))
    made.pre_tokenizer = WhitespaceSplit()
    made.save(str(folder / "tokenizer.json"))
    text = '{"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "1", "eos_token": "0"}\n'
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")
