"""The decoders that came after GPT-2, random ones, beside the reference library: the same logits, and back again.

`EXACT` is what two orders of summing leave in float64. The reference computes softmax weights (GPT-J, GPT-Neo, BLOOM,
MPT) or the angles of rotations (GPT-J, GPT-NeoX, Falcon) in float32 whatever the model is in: `SINGLE` is that.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
import transformers as reference
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.weights.live import decoder_agrees

EXACT, SINGLE = 1e-10, 5e-6
VOCABULARY, LENGTH = 41, 24
few = settings(max_examples=6, deadline=None, derandomize=True, phases=(Phase.generate,))
flags = st.booleans()
heads = st.sampled_from([1, 2, 3, 4, 6])
layers = st.integers(1, 3)
activations = st.sampled_from(["relu", "gelu", "gelu_new", "silu", "gelu_pytorch_tanh", "quick_gelu", "tanh"])
epsilons = st.sampled_from([1e-5, 1e-6, 1e-2])
inner = st.sampled_from([None, 17, 40])


def agrees(model: Any, tolerance: float, length: int = 11) -> None:
    with TemporaryDirectory() as folder:
        decoder_agrees(model, Path(folder), tolerance=tolerance, length=length)


class InSingle:
    """Generates in float32. A float64 mask holds the least float64, of which a float32 softmax makes NaN at padding."""

    def generate(self, **asked: Any) -> torch.Tensor:
        single: Any = deepcopy(self)
        written: torch.Tensor = super(InSingle, single.float()).generate(**asked)  # type: ignore[misc]
        return written


class Bloom(InSingle, reference.BloomForCausalLM):  # type: ignore[misc]
    pass


class Mpt(InSingle, reference.MptForCausalLM):  # type: ignore[misc]
    pass


@few
@given(st.data())
def test_gpt2(data: st.DataObject) -> None:
    count = data.draw(heads)
    config = reference.GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=LENGTH,
        n_embd=count * data.draw(st.integers(1, 8)),
        n_layer=data.draw(layers),
        n_head=count,
        n_inner=data.draw(inner),
        activation_function=data.draw(activations),
        layer_norm_epsilon=data.draw(epsilons),
        scale_attn_weights=data.draw(flags),
        scale_attn_by_inverse_layer_idx=data.draw(flags),
        reorder_and_upcast_attn=data.draw(flags),
        tie_word_embeddings=data.draw(flags),
    )
    agrees(reference.GPT2LMHeadModel(config), EXACT)


@few
@given(st.data())
def test_gptj(data: st.DataObject) -> None:
    count, size = data.draw(heads), data.draw(st.integers(2, 9))
    config = reference.GPTJConfig(
        vocab_size=VOCABULARY,
        n_positions=LENGTH,
        n_embd=count * size,
        n_layer=data.draw(layers),
        n_head=count,
        n_inner=data.draw(inner),
        rotary_dim=2 * data.draw(st.integers(1, size // 2)),
        activation_function=data.draw(activations),
        layer_norm_epsilon=data.draw(epsilons),
        tie_word_embeddings=data.draw(flags),
    )
    agrees(reference.GPTJForCausalLM(config), SINGLE)


@few
@given(st.data())
def test_gpt_neox(data: st.DataObject) -> None:
    count, size = data.draw(heads), data.draw(st.sampled_from([2, 4, 6, 10, 12]))
    rope = {"rope_theta": data.draw(st.sampled_from([10000.0, 100.0])), "rope_type": "default"}
    rope["partial_rotary_factor"] = data.draw(st.sampled_from([0.25, 0.5, 0.3, 0.75, 1.0]))
    if data.draw(flags):
        rope |= {"rope_type": "linear", "factor": 2.5}
    config = reference.GPTNeoXConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=LENGTH,
        hidden_size=count * size,
        num_hidden_layers=data.draw(layers),
        num_attention_heads=count,
        intermediate_size=data.draw(st.integers(5, 40)),
        hidden_act=data.draw(activations),
        layer_norm_eps=data.draw(epsilons),
        rope_parameters=rope,
        use_parallel_residual=data.draw(flags),
        attention_bias=data.draw(flags),
        tie_word_embeddings=data.draw(flags),
    )
    agrees(reference.GPTNeoXForCausalLM(config), SINGLE)


@few
@given(st.data())
def test_opt(data: st.DataObject) -> None:
    count = data.draw(heads)
    width = count * data.draw(st.integers(1, 8))
    config = reference.OPTConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=LENGTH,
        hidden_size=width,
        word_embed_proj_dim=data.draw(st.sampled_from([None, width, 5, 19])),
        num_hidden_layers=data.draw(layers),
        num_attention_heads=count,
        ffn_dim=data.draw(st.integers(5, 40)),
        activation_function=data.draw(activations),
        do_layer_norm_before=data.draw(flags),
        _remove_final_layer_norm=data.draw(flags),
        enable_bias=data.draw(flags),
        tie_word_embeddings=data.draw(flags),
    )
    agrees(reference.OPTForCausalLM(config), EXACT)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # when the reference is imported
@few
@given(st.data())
def test_gpt_bigcode(data: st.DataObject) -> None:
    count = data.draw(heads)
    config = reference.GPTBigCodeConfig(
        vocab_size=VOCABULARY,
        n_positions=LENGTH,
        n_embd=count * data.draw(st.integers(1, 8)),
        n_layer=data.draw(layers),
        n_head=count,
        n_inner=data.draw(inner),
        activation_function=data.draw(activations),
        layer_norm_epsilon=data.draw(epsilons),
        scale_attn_weights=data.draw(flags),
        multi_query=data.draw(flags),
        tie_word_embeddings=data.draw(flags),
    )
    agrees(reference.GPTBigCodeForCausalLM(config), EXACT)


@few
@given(st.data())
def test_gpt_neo(data: st.DataObject) -> None:
    count, depth = data.draw(heads), data.draw(layers)
    sights = data.draw(st.lists(st.sampled_from(["global", "local"]), min_size=1, max_size=2))
    config = reference.GPTNeoConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=LENGTH,
        hidden_size=count * data.draw(st.integers(1, 5)),
        num_layers=depth * len(sights),
        attention_types=[[sights, depth]],
        num_heads=count,
        intermediate_size=data.draw(inner),
        window_size=data.draw(st.integers(1, 6)),
        activation_function=data.draw(activations),
        layer_norm_epsilon=data.draw(epsilons),
        tie_word_embeddings=data.draw(flags),
    )
    agrees(reference.GPTNeoForCausalLM(config), SINGLE)


@few
@given(st.data())
def test_bloom(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 7))
    config = reference.BloomConfig(
        vocab_size=VOCABULARY,
        hidden_size=count * data.draw(st.integers(1, 8)),
        n_layer=data.draw(layers),
        n_head=count,
        layer_norm_epsilon=data.draw(epsilons),
        apply_residual_connection_post_layernorm=data.draw(flags),
        tie_word_embeddings=data.draw(flags),
    )
    agrees(Bloom(config), SINGLE)


@few
@given(st.data())
def test_mpt(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 7))
    config = reference.MptConfig(
        vocab_size=VOCABULARY,
        max_seq_len=LENGTH,
        d_model=count * data.draw(st.integers(1, 8)),
        n_layers=data.draw(layers),
        n_heads=count,
        expansion_ratio=data.draw(st.sampled_from([2, 4])),  # which the reference passes over
        layer_norm_epsilon=data.draw(epsilons),
        attn_config={
            "clip_qkv": data.draw(st.sampled_from([None, 0.0, 0.7])),
            "softmax_scale": data.draw(st.sampled_from([None, 0.3])),
            "qk_ln": data.draw(flags),
            "alibi_bias_max": data.draw(st.sampled_from([8, 4])),
        },
        tie_word_embeddings=data.draw(flags),
    )
    agrees(Mpt(config), SINGLE)


@settings(few, max_examples=14)
@given(st.data())
def test_falcon(data: st.DataObject) -> None:
    keys, queries = data.draw(st.sampled_from([1, 2, 3])), data.draw(st.sampled_from([1, 2, 3]))
    new, side_by_side = data.draw(flags), data.draw(flags)
    rope = {"rope_type": "default", "rope_theta": data.draw(st.sampled_from([10000.0, 100.0]))}
    config = reference.FalconConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=LENGTH,
        hidden_size=keys * queries * data.draw(st.sampled_from([2, 4, 6])),
        num_hidden_layers=data.draw(layers),
        num_attention_heads=keys * queries,
        num_kv_heads=keys if new else None,
        ffn_hidden_size=data.draw(inner),
        activation=data.draw(activations),
        layer_norm_epsilon=data.draw(epsilons),
        alibi=data.draw(flags),
        new_decoder_architecture=new,
        multi_query=data.draw(flags),
        parallel_attn=new or side_by_side,
        num_ln_in_parallel_attn=data.draw(st.sampled_from([None, 1, 2])) if new else None,
        bias=data.draw(flags),
        rope_parameters=rope,
        tie_word_embeddings=data.draw(flags),
    )
    agrees(reference.FalconForCausalLM(config), SINGLE)


def test_falcon_rounds_alibi_by_the_place_in_the_text() -> None:
    """From position 257 on bfloat16 does not even know all places."""
    config = reference.FalconConfig(
        vocab_size=VOCABULARY, hidden_size=20, num_hidden_layers=2, num_attention_heads=5, alibi=True, bias=True
    )
    agrees(reference.FalconForCausalLM(config), EXACT, length=300)
