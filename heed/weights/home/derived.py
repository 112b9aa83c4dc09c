"""The config.json that a family would have for a model of heed's own: the inverse of `Family.ours`, as far as it goes.

A derivation takes what fits and passes over what does not: `fit.py` asks the family what it makes of that config, and
only if it makes the very same model of it is the family the right one. `PROPOSALS` is the table, the likeliest first.
"""

from __future__ import annotations

from collections.abc import Callable, KeysView, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from ...core.config import Data
from ...core.contract import MixerConfig
from ...mixers import Attention
from ...models import Decoder, Encoder, Seq2seq, Shape
from ...parts.feedforward import FeedForward, Gated
from ...parts.layers.norms import LayerNorm, NormConfig, RMSNorm
from ...parts.masks import Window
from ...parts.outputs.heads import Masked, Pooled, Tagged
from ...parts.positions import AnyAdded, Buckets, Learned, Rope
from ..families.base import ACTIVATIONS
from ..formats.safetensors import Tensors
from .plain import hidden

# heed's word for an activation, and theirs; of several, the one that torch computes as heed does.
THEIRS = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())} | {"gelu_tanh": "gelu_pytorch_tanh"}


class Promised(Tensors):
    """Tensors that are yet to be written, by name and shape: from them a family tells which heads there will be."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.shapes = dict(shapes)

    def __getitem__(self, name: str) -> Tensor:
        return self.like(name)

    @property
    def names(self) -> KeysView[str]:
        return self.shapes.keys()

    def like(self, name: str) -> Tensor:
        return torch.empty(self.shapes[name], device="meta")


@dataclass(frozen=True)
class Proposal:
    """A config.json, its model's class, and tensors that tell the family what it is a model with."""

    config: Data
    model: str
    tensors: Promised


Propose: TypeAlias = Callable[[Shape, int], "Proposal | None"]  # of a shape and the tokens it was trained on at a time
ANY = 1 << 40  # wide enough for every width


def _ends(shape: Decoder.Config, table: str) -> Promised:
    return Promised({table: (ANY,), "lm_head.weight": (ANY,)})


def llama(shape: Shape, length: int) -> Proposal | None:
    """Llama."""
    return _skeleton(shape, length, "LlamaForCausalLM")


def arcee(shape: Shape, length: int) -> Proposal | None:
    """Arcee."""
    return _skeleton(shape, length, "ArceeForCausalLM")


def qwen2(shape: Shape, length: int) -> Proposal | None:
    """Qwen 2."""
    return _skeleton(shape, length, "Qwen2ForCausalLM", {"use_sliding_window": False, "layer_types": None})


def qwen3(shape: Shape, length: int) -> Proposal | None:
    """Qwen 3."""
    return _skeleton(shape, length, "Qwen3ForCausalLM", {"use_sliding_window": False, "layer_types": None})


def mistral(shape: Shape, length: int) -> Proposal | None:
    """Mistral, with a window or without."""
    mixer = shape.mixer_of(0) if isinstance(shape, Decoder.Config) else None
    mask = mixer.mask if isinstance(mixer, Attention.Config) else None
    seen = mask.back + 1 if isinstance(mask, Window) else None
    return _skeleton(shape, length, "MistralForCausalLM", {"sliding_window": seen})


def _skeleton(shape: Shape, length: int, model: str, more: Data | None = None) -> Proposal | None:
    if not isinstance(shape, Decoder.Config) or not isinstance(mixer := shape.mixer_of(0), Attention.Config):
        return None
    inner, rope = shape.feedforward_of(0), mixer.position
    theta = rope.base if isinstance(rope, Rope.Config) else 10000.0
    config: Data = {
        "vocab_size": shape.tokens,
        "hidden_size": shape.width,
        "num_hidden_layers": shape.depth,
        "num_attention_heads": mixer.heads,
        "num_key_value_heads": mixer.kv_heads or mixer.heads,
        "head_dim": mixer.size(shape.width),
        "attention_bias": mixer.bias,
        "rms_norm_eps": shape.norm.eps if isinstance(shape.norm, RMSNorm) else 1e-6,
        "max_position_embeddings": length,
        "rope_theta": theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "tie_word_embeddings": shape.tied,
        **(more or {}),
    }
    if isinstance(inner, FeedForward.Config | Gated.Config):
        size, act = hidden(inner, shape.width), THEIRS[inner.activation]
        config |= {"intermediate_size": size, "hidden_act": act, "mlp_bias": inner.bias}
    return Proposal(config, model, _ends(shape, "model.embed_tokens.weight"))


def gpt2(shape: Shape, length: int) -> Proposal | None:
    """GPT-2."""
    if not isinstance(shape, Decoder.Config) or not isinstance(mixer := shape.mixer_of(0), Attention.Config):
        return None
    config: Data = {
        "vocab_size": shape.tokens,
        "n_positions": _places(shape.position, length),
        "n_embd": shape.width,
        "n_layer": shape.depth,
        "n_head": mixer.heads,
        "layer_norm_epsilon": _eps(shape.norm),
        "scale_attn_weights": mixer.scale != 1.0,
        "tie_word_embeddings": shape.tied,
        **_inner(shape.feedforward_of(0), shape.width, "n_inner", "activation_function"),
    }
    return Proposal(config, "GPT2LMHeadModel", _ends(shape, "transformer.wte.weight"))


def bert(shape: Shape, length: int) -> Proposal | None:
    """BERT, with the heads that it has."""
    if not isinstance(shape, Encoder.Config) or not isinstance(mixer := shape.mixer_of(0), Attention.Config):
        return None
    config: Data = {
        "vocab_size": shape.tokens,
        "hidden_size": shape.width,
        "num_hidden_layers": shape.depth,
        "num_attention_heads": mixer.heads,
        "max_position_embeddings": _places(shape.position, length),
        "type_vocab_size": shape.segments or 0,
        "layer_norm_eps": _eps(shape.norm),
        **_inner(shape.feedforward_of(0), shape.width, "intermediate_size", "hidden_act"),
    }
    model, stored = _bert_heads(shape)
    return Proposal({**config, "architectures": [model]}, model, Promised(stored))


def _bert_heads(shape: Encoder.Config) -> tuple[str, dict[str, tuple[int, ...]]]:
    """The class of transformers that has these heads, and tensors that say so."""
    heads = {type(head): head for head in shape.heads or ()}
    stem = "bert." if heads else ""
    found: dict[str, tuple[int, ...]] = {f"{stem}embeddings.word_embeddings.weight": (shape.tokens, shape.width)}
    pooled, tagged = heads.get(Pooled.Config), heads.get(Tagged.Config)
    if Masked.Config in heads:
        found["cls.predictions.transform.dense.weight"] = (shape.width, shape.width)
    labels = pooled.labels if isinstance(pooled, Pooled.Config) else None
    if pooled is not None:
        found[f"{stem}pooler.dense.weight"] = (shape.width, shape.width)
    if labels is not None:
        scores = "cls.seq_relationship" if Masked.Config in heads else "classifier"
        found[f"{scores}.weight"] = (labels, shape.width)
    if isinstance(tagged, Tagged.Config) and tagged.labels is not None:
        found["classifier.weight"] = (tagged.labels, shape.width)
        return "BertForTokenClassification", found
    if Masked.Config in heads:
        return "BertForPreTraining" if pooled is not None else "BertForMaskedLM", found
    return "BertForSequenceClassification" if labels is not None else "BertModel", found


def t5(shape: Shape, length: int) -> Proposal | None:
    """T5, both sides."""
    if not isinstance(shape, Seq2seq.Config) or not isinstance(mixer := shape.decoder.mixer_of(0), Attention.Config):
        return None
    decoder, inner = shape.decoder, shape.decoder.feedforward_of(0)
    config: Data = {
        "vocab_size": decoder.tokens,
        "d_model": decoder.width,
        "d_kv": mixer.size(decoder.width),
        "num_layers": shape.encoder.depth,
        "num_decoder_layers": decoder.depth,
        "num_heads": mixer.heads,
        "layer_norm_epsilon": _eps(decoder.norm),
        "tie_word_embeddings": decoder.tied,
        "scale_decoder_outputs": decoder.head_scale != 1.0,
        "is_encoder_decoder": True,
    }
    if isinstance(inner, FeedForward.Config | Gated.Config):
        gate = "gated-" if isinstance(inner, Gated.Config) else ""
        name = "gelu" if gate and inner.activation == "gelu_tanh" else THEIRS[inner.activation]
        config |= {"d_ff": hidden(inner, decoder.width), "feed_forward_proj": f"{gate}{name}"}
    if isinstance(position := mixer.position, Buckets.Config):
        config["relative_attention_num_buckets"] = position.buckets
        config["relative_attention_max_distance"] = position.distance
    stored = {"shared.weight": (ANY,), "decoder.final_layer_norm.weight": (decoder.width,)}
    stored |= {} if decoder.tied else {"lm_head.weight": (ANY,)}
    return Proposal(config, "T5ForConditionalGeneration", Promised(stored))


def marian(shape: Shape, length: int) -> Proposal | None:
    """Marian: the original Transformer, with its norms behind."""
    return _two_sided(shape, length, "MarianMTModel", {"share_encoder_decoder_embeddings": True})


def pegasus(shape: Shape, length: int) -> Proposal | None:
    """Pegasus: the same with its norms in front."""
    proposal = _two_sided(shape, length, "PegasusForConditionalGeneration", {})
    if proposal is None:
        return None
    size = proposal.config["max_position_embeddings"], proposal.config["d_model"]
    waves = {f"model.{side}.embed_positions.weight": size for side in ("encoder", "decoder")}  # else it warns
    return replace(proposal, tensors=Promised({**proposal.tensors.shapes, **waves}))


def bart(shape: Shape, length: int) -> Proposal | None:
    """BART: learned positions, norms behind."""
    return _two_sided(shape, length, "BartForConditionalGeneration", {})


def mbart(shape: Shape, length: int) -> Proposal | None:
    """MBART: learned positions, norms in front."""
    return _two_sided(shape, length, "MBartForConditionalGeneration", {})


def _two_sided(shape: Shape, length: int, model: str, more: Data) -> Proposal | None:
    if not isinstance(shape, Seq2seq.Config) or not isinstance(shape.encoder, Encoder.Config):
        return None
    sides = {"encoder": shape.encoder, "decoder": shape.decoder}
    mixers = {name: side.mixer_of(0) for name, side in sides.items()}
    if not all(isinstance(mixer, Attention.Config) for mixer in mixers.values()):
        return None
    config: Data = {
        "vocab_size": shape.decoder.tokens,
        "max_position_embeddings": _places(shape.decoder.position, length),
        "d_model": shape.decoder.width,
        "scale_embedding": shape.decoder.scaled,
        "tie_word_embeddings": shape.decoder.tied,
        "is_encoder_decoder": True,
        **more,
    }
    for name, side in sides.items():
        inner = _inner(side.feedforward_of(0), side.width, f"{name}_ffn_dim", "activation_function")
        mixer = mixers[name]
        assert isinstance(mixer, Attention.Config)
        config |= {f"{name}_layers": side.depth, f"{name}_attention_heads": mixer.heads, **inner}
    config["num_hidden_layers"] = shape.encoder.depth
    stored: dict[str, tuple[int, ...]] = {"model.shared.weight": (ANY,)}
    stored |= {} if shape.decoder.tied else {"lm_head.weight": (ANY,)}
    stored |= {"final_logits_bias": (1, shape.decoder.tokens)} if shape.decoder.head_bias else {}
    return Proposal(config, model, Promised(stored))


def _inner(config: MixerConfig, width: int, size: str, act: str) -> Data:
    """A feed-forward under the names of a family."""
    if not isinstance(config, FeedForward.Config | Gated.Config):
        return {}
    return {size: hidden(config, width), act: THEIRS[config.activation]}


def _eps(norm: NormConfig) -> float:
    return norm.eps if isinstance(norm, LayerNorm | RMSNorm) else 1e-5


def _places(position: AnyAdded | None, length: int) -> int:
    return position.length if isinstance(position, Learned.Config) else length


PROPOSALS: dict[str, Propose] = {
    "llama": llama,
    "gpt2": gpt2,
    "arcee": arcee,
    "qwen2": qwen2,
    "qwen3": qwen3,
    "mistral": mistral,
    "bert": bert,
    "t5": t5,
    "marian": marian,
    "pegasus": pegasus,
    "bart": bart,
    "mbart": mbart,
}
