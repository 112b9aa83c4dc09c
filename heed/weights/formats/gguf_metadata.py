"""The metadata of a GGUF file: asked for by key, with errors that name the key, and in the words of a config.json."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ...core.config import Data
from ...core.errors import ConfigError, WeightsError
from ...parts.positions.scaling import Llama3

MOST = 2**31  # no width, depth or vocabulary comes near
FACTORS = "rope_freqs.weight"  # what each frequency of Llama 3 is divided by
ROUNDED = 1e-5  # relative: what float32 leaves of frequencies and their quotients
UNUSED = ("finetuned", "yarn_ext_factor")  # keys of rope.scaling that change nothing
GEMMA2_27B = 46  # layers; the only Gemma 2 whose scores are not scaled by the size of a head
YARN = {
    "attention_factor": "yarn_attn_factor",
    "beta_fast": "yarn_beta_fast",
    "beta_slow": "yarn_beta_slow",
}


@dataclass(frozen=True)
class Keys:
    """What a GGUF file says of its architecture, and the shapes of its tensors."""

    place: Path
    metadata: Mapping[str, object]
    shapes: Mapping[str, tuple[int, ...]]  # outermost dimension first, as in torch
    values: Callable[[str], Tensor]  # reads one tensor

    @property
    def architecture(self) -> str:
        found = self.metadata.get("general.architecture")
        if isinstance(found, str):
            return found
        raise WeightsError(f"{self.place}: general.architecture is {found!r}; needed is the name of an architecture")

    def get(self, key: str, default: object = None) -> object:
        """What stands under the architecture's key of this name."""
        return self.metadata.get(f"{self.architecture}.{key}", default)

    def size(self, key: str, default: int | None = None) -> int:
        """A whole number above 0. Where there is one for each layer, all must be the same."""
        value = self.get(key, default)
        if isinstance(value, list) and value and all(item == value[0] for item in value):
            value = value[0]
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < MOST:
            return value
        raise self.wrong(key, "one whole number above 0")

    def number(self, key: str, default: float | None = None) -> float:
        """A number above 0. A float32 stands for the shortest decimal that rounds to it: 1e-05, not 9.999999747e-06."""
        value = self.get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
            raise self.wrong(key, "a number above 0")
        single = torch.tensor(value, dtype=torch.float32).numpy()[()]
        return float(str(single)) if float(single) == value else float(value)

    def wrong(self, key: str, needed: str) -> WeightsError:
        """The error of a key that holds something else than is needed."""
        value = self.get(key)
        given = "missing" if value is None else repr(value)[:60]
        return WeightsError(f"{self.place}: {self.architecture}.{key} is {given}; needed is {needed}")

    @property
    def width(self) -> int:
        return self.size("embedding_length")

    @property
    def depth(self) -> int:
        return self.size("block_count")

    @property
    def heads(self) -> int:
        return self.size("attention.head_count")

    @property
    def groups(self) -> int:
        """Heads of keys and values."""
        return self.size("attention.head_count_kv", self.heads)

    @property
    def head_size(self) -> int:
        size = self.size("attention.key_length", self.width // self.heads)
        if self.size("attention.value_length", size) != size:
            raise self.wrong("attention.value_length", f"{size}, the size of a key")
        return size

    @property
    def length(self) -> int:
        """Of the longest text."""
        return self.size("context_length")

    @property
    def inner(self) -> int:
        """The hidden width of the feed-forward, by its weights: some converters write 4 · width whatever it is."""
        return self.rows("blk.0.ffn_up.weight")

    def rows(self, name: str) -> int:
        """The outer dimension of a tensor."""
        if name not in self.shapes:
            raise WeightsError(f"{self.place} has no {name}")
        return self.shapes[name][0]

    def rope(self, size: int) -> Data:
        """Rotary positions over `size` channels, and what slows them down."""
        rope = {"rope_type": "default", "rope_theta": self.number("rope.freq_base", 10000.0)}
        if FACTORS in self.shapes:
            return rope | self._llama3(size, self.number("rope.freq_base", 10000.0))
        factor = self.number("rope.scaling.factor", self.number("rope.scale_linear", 1.0))
        match self.get("rope.scaling.type", "linear"):
            case "none":
                return rope
            case "linear":
                self._nothing_but("factor")
                return rope if factor == 1.0 else rope | {"rope_type": "linear", "factor": factor}
            case "yarn":
                self._nothing_but("factor", *YARN.values())
                original = self.size("rope.scaling.original_context_length", self.length)
                given = {ours: f"rope.scaling.{theirs}" for ours, theirs in YARN.items()}
                return {
                    **rope,
                    "rope_type": "yarn",
                    "factor": factor,
                    "original_max_position_embeddings": original,
                    **{ours: self.number(theirs) for ours, theirs in given.items() if self.get(theirs) is not None},
                }
            case _:
                raise self.wrong("rope.scaling.type", "none, linear or yarn: heed reads no other from GGUF")

    def _nothing_but(self, *known: str) -> None:
        """Raise if the positions are scaled by anything else."""
        prefix = f"{self.architecture}.rope.scaling."
        asked = {key.removeprefix(prefix) for key in self.metadata if key.startswith(prefix)}
        strange = sorted(asked - {"type", "original_context_length", *UNUSED, *known})
        if strange:
            raise WeightsError(f"{self.place}: heed does not know {prefix}{strange[0]}, which changes its positions")

    def _llama3(self, size: int, base: float) -> Data:
        """Llama 3's rule, from what each frequency is divided by: that is all that GGUF holds of it."""
        if self.shapes[FACTORS] != (size // 2,):
            raise WeightsError(
                f"{self.place}: {FACTORS} has the shape {list(self.shapes[FACTORS])} for {size} channels"
            )
        divided = self.values(FACTORS).double()
        if bool((divided == 1).all()):
            return {}
        frequency = base ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
        rule = _fitted(frequency, divided)
        if rule is not None:
            slowed = torch.tensor(rule.apply(tuple(frequency.tolist()), base), dtype=torch.float64)
            if torch.allclose(frequency / slowed, divided, rtol=ROUNDED, atol=0.0):
                return {
                    "rope_type": "llama3",
                    "factor": rule.factor,
                    "low_freq_factor": rule.low,
                    "high_freq_factor": rule.high,
                    "original_max_position_embeddings": rule.original,
                }
        raise WeightsError(
            f"{self.place}: the factors in {FACTORS} are not those of Llama 3, the only ones that heed finds a rule for"
        )


def _fitted(frequency: Tensor, divided: Tensor) -> Llama3 | None:
    """The rule with low = 1 that gives these divisors d, if there is one.

    It keeps a share s = (1/d - 1/factor) / (1 - 1/factor) of a frequency f. Where that is neither 0 nor 1, it is
    (o·f/2π - 1) / (high - 1): two such points give o and high. With fewer, many rules give the same; take the authors'.
    """
    factor = divided.max().item()
    between = (divided > 1 + ROUNDED) & (divided < factor * (1 - ROUNDED))
    try:
        if between.sum() < 2:
            return Llama3(factor=factor)
        share = ((1 / divided - 1 / factor) / (1 - 1 / factor))[between].tolist()
        turns = (frequency / (2 * math.pi))[between].tolist()
        slope = (share[0] - share[-1]) / (turns[0] - turns[-1])
        start = share[0] - slope * turns[0]
        return Llama3(factor=factor, low=1.0, high=round(1 - 1 / start, 3), original=round(-slope / start))
    except (ConfigError, ArithmeticError, ValueError):  # numbers that no rule has, down to infinities
        return None


# --- the metadata in the words of a config.json ---


def decoder(keys: Keys) -> Data:
    """What Llama and its kin share."""
    size = keys.head_size
    if keys.size("rope.dimension_count", size) != size:
        raise keys.wrong("rope.dimension_count", f"{size}, the size of a head")
    return {
        "hidden_size": keys.width,
        "intermediate_size": keys.size("feed_forward_length"),
        "num_hidden_layers": keys.depth,
        "num_attention_heads": keys.heads,
        "num_key_value_heads": keys.groups,
        "head_dim": size,
        "max_position_embeddings": keys.length,
        "rms_norm_eps": keys.number("attention.layer_norm_rms_epsilon"),
        "rope_parameters": keys.rope(size),
        "attention_bias": "blk.0.attn_q.bias" in keys.shapes,
        "hidden_act": "silu",
    }


def llama(keys: Keys) -> Data:
    config = decoder(keys) | {"mlp_bias": "blk.0.ffn_up.bias" in keys.shapes}
    if not keys.get("attention.sliding_window", 0):
        return config
    return config | {  # a Llama with a window is a Mistral
        "model_type": "mistral",
        "architectures": ["MistralForCausalLM"],
        "sliding_window": keys.size("attention.sliding_window"),
    }


def arcee(keys: Keys) -> Data:
    return decoder(keys) | {"mlp_bias": "blk.0.ffn_up.bias" in keys.shapes, "hidden_act": "relu2"}


def mixtral(keys: Keys) -> Data:
    used = keys.size("expert_used_count")
    return decoder(keys) | {"num_local_experts": keys.size("expert_count"), "num_experts_per_tok": used}


def gemma2(keys: Keys) -> Data:
    scaled_by = keys.width // keys.heads if keys.depth == GEMMA2_27B else keys.head_size  # as llama.cpp has it
    return decoder(keys) | {
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_act": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": scaled_by,
        "attn_logit_softcapping": keys.number("attn_logit_softcapping", 50.0),
        "final_logit_softcapping": keys.number("final_logit_softcapping", 30.0),
        "sliding_window": keys.size("attention.sliding_window", 4096),
        "layer_types": [("sliding_attention", "full_attention")[layer % 2] for layer in range(keys.depth)],
    }


def gpt2(keys: Keys) -> Data:
    return {
        "n_embd": keys.width,
        "n_layer": keys.depth,
        "n_head": keys.heads,
        "n_inner": keys.inner,
        "n_positions": keys.length,
        "layer_norm_epsilon": keys.number("attention.layer_norm_epsilon"),
        "activation_function": "gelu_new",
    }


def starcoder(keys: Keys) -> Data:
    several = keys.rows("blk.0.attn_qkv.weight") == 3 * keys.width
    return gpt2(keys) | {"multi_query": not several, "activation_function": "gelu_pytorch_tanh"}


def gptneox(keys: Keys) -> Data:
    size = keys.head_size
    turned = keys.size("rope.dimension_count", size)
    parallel = keys.get("use_parallel_residual")
    if not isinstance(parallel, bool):
        raise keys.wrong("use_parallel_residual", "true or false")
    return {
        "hidden_size": keys.width,
        "intermediate_size": keys.size("feed_forward_length"),
        "num_hidden_layers": keys.depth,
        "num_attention_heads": keys.heads,
        "max_position_embeddings": keys.length,
        "layer_norm_eps": keys.number("attention.layer_norm_epsilon"),
        "rope_parameters": keys.rope(turned) | {"partial_rotary_factor": turned / size},
        "use_parallel_residual": parallel,
        "attention_bias": "blk.0.attn_qkv.bias" in keys.shapes,
        "hidden_act": "gelu",
    }


def falcon(keys: Keys) -> Data:
    two = "blk.0.attn_norm_2.weight" in keys.shapes
    grouped = keys.groups > 1
    return {
        "hidden_size": keys.width,
        "ffn_hidden_size": keys.inner,
        "num_hidden_layers": keys.depth,
        "num_attention_heads": keys.heads,
        "num_kv_heads": keys.groups,
        "multi_query": not grouped,
        "new_decoder_architecture": two or grouped,
        "num_ln_in_parallel_attn": 2 if two else 1,
        "parallel_attn": True,
        "bias": False,
        "alibi": False,
        "max_position_embeddings": keys.length,
        "layer_norm_epsilon": keys.number("attention.layer_norm_epsilon"),
        "rope_parameters": keys.rope(keys.head_size),
        "activation": "gelu",
    }


def bloom(keys: Keys) -> Data:
    return {
        "hidden_size": keys.width,
        "n_layer": keys.depth,
        "n_head": keys.heads,
        "layer_norm_epsilon": keys.number("attention.layer_norm_epsilon"),
    }


def mpt(keys: Keys) -> Data:
    if keys.groups != keys.heads:
        raise keys.wrong("attention.head_count_kv", f"{keys.heads}, as many as heads: its family has no other")
    clipped, bias = (keys.get(f"attention.{name}", 0) for name in ("clamp_kqv", "max_alibi_bias"))
    return {
        "d_model": keys.width,
        "n_layers": keys.depth,
        "n_heads": keys.heads,
        "expansion_ratio": keys.inner // keys.width,
        "max_seq_len": keys.length,
        "layer_norm_epsilon": keys.number("attention.layer_norm_epsilon"),
        "no_bias": not any(name.endswith(".bias") for name in keys.shapes),
        "attn_config": {
            "alibi": bool(bias),
            "alibi_bias_max": round(keys.number("attention.max_alibi_bias")) if bias else 8,
            "clip_qkv": keys.number("attention.clamp_kqv") if clipped else None,
        },
    }


def bert(keys: Keys) -> Data:
    return {
        "hidden_size": keys.width,
        "intermediate_size": keys.inner,
        "num_hidden_layers": keys.depth,
        "num_attention_heads": keys.heads,
        "max_position_embeddings": keys.rows("position_embd.weight"),
        "type_vocab_size": keys.rows("token_types.weight"),
        "layer_norm_eps": keys.number("attention.layer_norm_epsilon"),
        "hidden_act": "gelu",
    }


def t5(keys: Keys) -> Data:
    gated = "enc.blk.0.ffn_gate.weight" in keys.shapes
    start = keys.get("decoder_start_token_id", 0)
    return {
        "is_encoder_decoder": True,
        "d_model": keys.width,
        "d_kv": keys.head_size,
        "d_ff": keys.size("feed_forward_length"),
        "num_layers": keys.depth,
        "num_decoder_layers": keys.size("decoder_block_count", keys.depth),
        "num_heads": keys.heads,
        "relative_attention_num_buckets": keys.size("attention.relative_buckets_count"),
        "relative_attention_max_distance": 128,  # not in the file; llama.cpp has it fixed
        "layer_norm_epsilon": keys.number("attention.layer_norm_rms_epsilon"),
        "feed_forward_proj": "gated-gelu" if gated else "relu",
        "scale_decoder_outputs": "output.weight" not in keys.shapes,
        **({"decoder_start_token_id": start} if isinstance(start, int) and start >= 0 else {}),
    }
