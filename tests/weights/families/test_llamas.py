"""Llama and its descendants, random ones, beside the reference library: the same logits, and back again.

Whatever a model is in, the reference computes norms, rotations, softmax weights and routers in float32; `SINGLE` is
what a few layers leave of that. Where it rounds a router, a token may go another way: that did not happen here.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import transformers as reference
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from heed.weights import Opened
from tests.weights.live import decoder_agrees

SINGLE = 1e-5
VOCABULARY, LENGTH = 41, 24
few = settings(max_examples=6, deadline=None, derandomize=True, phases=(Phase.generate,))
flags = st.booleans()
layers = st.integers(1, 3)
windows = st.sampled_from([2, 3, 5, 8])  # the cache of the reference cannot keep a window of 1
activations = st.sampled_from(["silu", "gelu", "relu", "gelu_pytorch_tanh", "gelu_new"])


def agrees(model: Any, tolerance: float = SINGLE) -> Opened:
    with TemporaryDirectory() as folder:
        return decoder_agrees(model, Path(folder), tolerance=tolerance)


class Eager:
    """Experts one by one: the fused form of the reference does not know float64."""

    @classmethod
    def from_pretrained(cls, *given: Any, **asked: Any) -> Any:
        return super().from_pretrained(*given, experts_implementation="eager", **asked)  # type: ignore[misc]


class InSingle:
    """Padded in float32. A float64 mask holds the least float64, of which a float32 softmax makes NaN at padding."""

    def forward(self, **asked: Any) -> Any:
        if asked.get("attention_mask") is None or self.dtype == torch.float32:  # type: ignore[attr-defined]
            return super().forward(**asked)  # type: ignore[misc]
        single: Any = deepcopy(self)
        return single.float()(**asked)


class Gemma2(InSingle, reference.Gemma2ForCausalLM):
    pass


class Mixtral(Eager, reference.MixtralForCausalLM):
    pass


class Qwen2Moe(Eager, reference.Qwen2MoeForCausalLM):
    pass


class Qwen3Moe(Eager, reference.Qwen3MoeForCausalLM):
    pass


class DeepseekV3(Eager, reference.DeepseekV3ForCausalLM):
    pass


def ropes(size: int) -> st.SearchStrategy[dict[str, Any]]:
    """Every kind of rotation over so many channels, within the length that each was trained with."""
    divisors = st.lists(st.sampled_from([1.0, 1.25, 2.0, 7.0]), min_size=size // 2, max_size=size // 2)
    original = st.sampled_from([8, 24, 64])
    kinds: list[st.SearchStrategy[dict[str, Any]]] = [
        st.just({"rope_type": "default"}),
        st.fixed_dictionaries({"rope_type": st.just("linear"), "factor": st.sampled_from([1.0, 2.5])}),
        st.fixed_dictionaries({"rope_type": st.just("dynamic"), "factor": st.sampled_from([1.0, 4.0])}),
        st.fixed_dictionaries(
            {
                "rope_type": st.just("llama3"),
                "factor": st.just(8.0),
                "low_freq_factor": st.just(1.0),
                "high_freq_factor": st.sampled_from([2.0, 4.0]),
                "original_max_position_embeddings": original,
            }
        ),
        st.fixed_dictionaries(
            {
                "rope_type": st.just("yarn"),
                "factor": st.sampled_from([1.0, 4.0]),
                "original_max_position_embeddings": original,
            },
            optional={
                "attention_factor": st.just(1.3),
                "beta_fast": st.sampled_from([2.0, 4.0]),
                "beta_slow": st.just(0.5),
                "truncate": flags,
                "mscale": st.just(0.7),
                "mscale_all_dim": st.sampled_from([1.0, 0.4]),
            },
        ),
        st.fixed_dictionaries(
            {
                "rope_type": st.just("longrope"),
                "short_factor": divisors,
                "long_factor": divisors,
                "original_max_position_embeddings": st.just(LENGTH),
            },
            optional={"factor": st.just(4.0), "attention_factor": st.just(1.2)},
        ),
    ]
    theta = st.sampled_from([10000.0, 100.0, 500000.0])
    return st.builds(lambda kind, base: {**kind, "rope_theta": base}, st.one_of(kinds), theta)


def sizes(data: st.DataObject, *, free: bool = True) -> dict[str, Any]:
    """The fields that all of them have. `free`: heads need not fill the width."""
    groups, each = data.draw(st.sampled_from([1, 2, 3])), data.draw(st.sampled_from([1, 2]))
    size = data.draw(st.sampled_from([4, 6, 10]))
    width = groups * each * (data.draw(st.sampled_from([5, 8])) if free else size)
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": width,
        "intermediate_size": data.draw(st.sampled_from([7, 24])),
        "num_hidden_layers": data.draw(layers),
        "num_attention_heads": groups * each,
        "num_key_value_heads": groups,
        "max_position_embeddings": LENGTH,
        "rms_norm_eps": data.draw(st.sampled_from([1e-6, 1e-5, 1e-2])),
        "tie_word_embeddings": data.draw(flags),
        "rope_parameters": data.draw(ropes(size)),
        **({"head_dim": size} if free else {}),
    }


def types(data: st.DataObject, count: int) -> list[str]:
    return [data.draw(st.sampled_from(["full_attention", "sliding_attention"])) for _ in range(count)]


@settings(few, max_examples=18)
@given(st.data())
def test_llama(data: st.DataObject) -> None:
    config = reference.LlamaConfig(
        **sizes(data),
        attention_bias=data.draw(flags),
        mlp_bias=data.draw(flags),
        hidden_act=data.draw(activations),
    )
    agrees(reference.LlamaForCausalLM(config))


@few
@given(st.data())
def test_mistral(data: st.DataObject) -> None:
    config = reference.MistralConfig(**sizes(data), sliding_window=data.draw(st.none() | windows))
    agrees(reference.MistralForCausalLM(config))


@few
@given(st.data())
def test_qwen2(data: st.DataObject) -> None:
    fields = sizes(data, free=False)
    config = reference.Qwen2Config(
        **fields,
        use_sliding_window=data.draw(flags),
        sliding_window=data.draw(windows),
        max_window_layers=data.draw(st.integers(0, 3)),
    )
    agrees(reference.Qwen2ForCausalLM(config))


@few
@given(st.data())
def test_qwen3(data: st.DataObject) -> None:
    fields = sizes(data)
    config = reference.Qwen3Config(
        **fields,
        attention_bias=data.draw(flags),
        use_sliding_window=True,
        sliding_window=data.draw(windows),
        layer_types=types(data, fields["num_hidden_layers"]),
    )
    agrees(reference.Qwen3ForCausalLM(config))


@few
@given(st.data())
def test_gemma(data: st.DataObject) -> None:
    config = reference.GemmaConfig(
        **sizes(data), attention_bias=data.draw(flags), hidden_act=data.draw(activations), pad_token_id=None
    )
    agrees(reference.GemmaForCausalLM(config))


@settings(few, max_examples=10)
@given(st.data())
def test_gemma2(data: st.DataObject) -> None:
    fields = sizes(data)
    config = reference.Gemma2Config(
        **fields,
        pad_token_id=None,
        attention_bias=data.draw(flags),
        hidden_activation=data.draw(activations),
        query_pre_attn_scalar=data.draw(st.sampled_from([1, 7, 24])),
        sliding_window=data.draw(windows),
        layer_types=data.draw(st.none()) if data.draw(flags) else types(data, fields["num_hidden_layers"]),
        attn_logit_softcapping=data.draw(st.sampled_from([None, 0.5, 5.0])),
        final_logit_softcapping=data.draw(st.sampled_from([None, 0.5, 5.0])),
    )
    agrees(Gemma2(config))


@few
@given(st.data())
def test_phi3(data: st.DataObject) -> None:
    fields = sizes(data, free=False)
    size = fields["hidden_size"] // fields["num_attention_heads"]
    turned = data.draw(st.sampled_from([even for even in (2, 4, 6, 10) if even <= size]))
    rope: dict[str, Any] = {"rope_type": "default"}
    if data.draw(flags):
        divisors = st.lists(st.sampled_from([1.0, 1.5, 4.0]), min_size=turned // 2, max_size=turned // 2)
        rope = {"rope_type": "longrope", "short_factor": data.draw(divisors), "long_factor": data.draw(divisors)}
    config = reference.Phi3Config(
        **fields
        | {"rope_parameters": rope | {"rope_theta": 1e4, "partial_rotary_factor": min(1.0, (turned + 0.1) / size)}},
        original_max_position_embeddings=data.draw(st.sampled_from([18, LENGTH])),
        sliding_window=data.draw(st.none() | windows),
        hidden_act=data.draw(activations),
        pad_token_id=None,
    )
    agrees(reference.Phi3ForCausalLM(config))


@few
@given(st.data())
def test_mixtral(data: st.DataObject) -> None:
    experts = data.draw(st.integers(1, 5))
    config = reference.MixtralConfig(
        **sizes(data),
        sliding_window=data.draw(st.none() | windows),
        num_local_experts=experts,
        num_experts_per_tok=data.draw(st.integers(1, experts)),
        hidden_act=data.draw(activations),
    )
    agrees(Mixtral(config))


@few
@given(st.data())
def test_qwen2_moe(data: st.DataObject) -> None:
    fields = sizes(data, free=False)
    config = reference.Qwen2MoeConfig(
        **fields,
        **sparse(data, fields["num_hidden_layers"]),
        shared_expert_intermediate_size=data.draw(st.sampled_from([3, 8])),
        qkv_bias=data.draw(flags),
        use_sliding_window=data.draw(flags),
        sliding_window=data.draw(windows),
        max_window_layers=data.draw(st.integers(0, 3)),
    )
    agrees(Qwen2Moe(config))


@few
@given(st.data())
def test_qwen3_moe(data: st.DataObject) -> None:
    fields = sizes(data)
    config = reference.Qwen3MoeConfig(
        **fields,
        **sparse(data, fields["num_hidden_layers"]),
        attention_bias=data.draw(flags),
        use_sliding_window=data.draw(flags),
        sliding_window=data.draw(windows),
    )
    agrees(Qwen3Moe(config))


def sparse(data: st.DataObject, count: int) -> dict[str, Any]:
    return {
        "moe_intermediate_size": data.draw(st.sampled_from([3, 8])),
        "num_experts": 4,
        "num_experts_per_tok": data.draw(st.integers(1, 4)),
        "norm_topk_prob": data.draw(flags),
        "decoder_sparse_step": data.draw(st.integers(1, 2)),
        "mlp_only_layers": [layer for layer in range(count) if data.draw(st.integers(0, 3)) == 0],
    }


@settings(few, max_examples=12)
@given(st.data())
def test_deepseek_v3(data: st.DataObject) -> None:
    heads, turned = data.draw(st.sampled_from([1, 2, 3])), data.draw(st.sampled_from([4, 6]))
    groups, each = data.draw(st.sampled_from([1, 2, 3])), data.draw(st.sampled_from([2, 3]))
    kept = data.draw(st.integers(1, groups))
    config = reference.DeepseekV3Config(
        vocab_size=VOCABULARY,
        hidden_size=data.draw(st.sampled_from([12, 15])),
        intermediate_size=9,
        moe_intermediate_size=data.draw(st.sampled_from([3, 8])),
        num_hidden_layers=data.draw(layers),
        num_attention_heads=heads,
        num_key_value_heads=heads,
        n_shared_experts=data.draw(st.integers(1, 2)),
        n_routed_experts=groups * each,
        routed_scaling_factor=data.draw(st.sampled_from([1.0, 2.5])),
        kv_lora_rank=data.draw(st.sampled_from([3, 16])),
        q_lora_rank=data.draw(st.sampled_from([None, 7])),
        qk_rope_head_dim=turned,
        qk_nope_head_dim=data.draw(st.sampled_from([5, 8])),
        v_head_dim=data.draw(st.sampled_from([3, 12])),
        n_group=groups,
        topk_group=kept,
        num_experts_per_tok=data.draw(st.integers(1, kept * each)),
        first_k_dense_replace=data.draw(st.integers(0, 2)),
        norm_topk_prob=data.draw(flags),
        max_position_embeddings=LENGTH,
        rms_norm_eps=data.draw(st.sampled_from([1e-6, 1e-2])),
        tie_word_embeddings=data.draw(flags),
        rope_parameters=data.draw(ropes(turned)),
        rope_interleave=data.draw(flags),
        attention_bias=data.draw(flags),
    )
    model = DeepseekV3(config)
    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            torch.nn.init.normal_(buffer, std=0.3)
    agrees(model)


@few
@given(st.data())
def test_arcee(data: st.DataObject) -> None:
    config = reference.ArceeConfig(
        **sizes(data, free=False), attention_bias=data.draw(flags), mlp_bias=data.draw(flags)
    )
    agrees(reference.ArceeForCausalLM(config))
