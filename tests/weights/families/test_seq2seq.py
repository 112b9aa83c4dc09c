"""T5, Switch, BART, Marian and their relatives of random sizes beside `transformers`, live."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.weights.families.twosided import agrees, made, tolerance

FEW = settings(max_examples=5, deadline=None, derandomize=True, phases=[Phase.generate])  # to shrink takes minutes

T5_SIZES = {
    "d_model": st.sampled_from([7, 12]),
    "d_kv": st.sampled_from([4, 5]),
    "d_ff": st.sampled_from([9, 16]),
    "num_layers": st.integers(1, 3),
    "num_decoder_layers": st.one_of(st.none(), st.integers(1, 3)),
    "num_heads": st.integers(1, 3),
    "relative_attention_num_buckets": st.sampled_from([6, 8, 32]),
    "relative_attention_max_distance": st.sampled_from([17, 20, 128]),
    "layer_norm_epsilon": st.sampled_from([1e-6, 1e-3]),
}
PROJECTIONS = st.sampled_from(["relu", "gelu", "gelu_new", "silu", "gated-gelu", "gated-silu", "gated-relu"])
BART_SIZES = {
    "d_model": st.sampled_from([12, 24]),
    "encoder_layers": st.integers(1, 3),
    "decoder_layers": st.integers(1, 3),
    "encoder_attention_heads": st.integers(1, 3),
    "decoder_attention_heads": st.integers(1, 3),
    "encoder_ffn_dim": st.sampled_from([9, 16]),
    "decoder_ffn_dim": st.sampled_from([9, 16]),
    "max_position_embeddings": st.sampled_from([16, 33]),
    "activation_function": st.sampled_from(["gelu", "relu", "swish", "gelu_new", "tanh"]),
    "scale_embedding": st.booleans(),
}


@pytest.mark.parametrize("kind", ["t5", "mt5", "umt5"])
@FEW
@given(sizes=st.fixed_dictionaries(T5_SIZES), projection=PROJECTIONS, tied=st.booleans())
def test_t5(kind: str, sizes: dict[str, Any], projection: str, tied: bool) -> None:
    with TemporaryDirectory() as folder:
        model = made(kind, **sizes, feed_forward_proj=projection, tie_word_embeddings=tied)
        agrees(model, Path(folder), tolerance(kind))


@FEW
@given(
    sizes=st.fixed_dictionaries(T5_SIZES),
    activation=st.sampled_from(["relu", "gelu_new"]),
    experts=st.integers(1, 4),
    sparse=st.tuples(st.integers(0, 2), st.integers(0, 2)),
)
def test_switch(sizes: dict[str, Any], activation: str, experts: int, sparse: tuple[int, int]) -> None:
    encoder, decoder = sparse
    chosen = {"num_sparse_encoder_layers": encoder, "num_sparse_decoder_layers": decoder, "num_experts": experts}
    with TemporaryDirectory() as folder:
        model = made("switch_transformers", **sizes | chosen, dense_act_fn=activation)
        agrees(model, Path(folder), tolerance("switch_transformers"))


@pytest.mark.parametrize("kind", ["bart", "mbart", "marian", "pegasus"])
@FEW
@given(sizes=st.fixed_dictionaries(BART_SIZES))
def test_bart(kind: str, sizes: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        agrees(made(kind, **sizes), Path(folder), tolerance(kind))
