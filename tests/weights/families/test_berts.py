"""BERT and its descendants beside `transformers`: every field of their configs, every head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.weights.families.encoders import EXACT, HEADS, ROUNDED, VOCABULARY, agrees, build, shape, sizes

Drawn = dict[str, Any]
twice = settings(max_examples=2, deadline=None, derandomize=True)  # every head each time, in a shape of its own


def each(
    names: Sequence[str], **more: st.SearchStrategy[Any]
) -> st.SearchStrategy[tuple[tuple[str, Drawn, Drawn], ...]]:
    """For each of these classes, the sizes of a model and further options."""
    drawn = (st.tuples(st.just(name), sizes, st.fixed_dictionaries(more)) for name in names)
    return st.tuples(*drawn)


def of(family: str, *more: str) -> list[str]:
    return [f"{family}{name}" for name in (*HEADS, *more)]


@twice
@given(each(of("Bert", "ForPreTraining", "ForNextSentencePrediction")))
def test_bert(cases: tuple[tuple[str, Drawn, Drawn], ...]) -> None:
    for name, drawn, _ in cases:
        agrees(build(name, shape(drawn)), EXACT)


@twice
@given(
    each([*of("Roberta"), *of("XLMRoberta")[1:3], "CamembertForTokenClassification"], pad_token_id=st.integers(0, 2))
)
def test_roberta(cases: tuple[tuple[str, Drawn, Drawn], ...]) -> None:
    for name, drawn, more in cases:
        agrees(build(name, shape(drawn, **more)), EXACT)


GROUPS = {"num_hidden_groups": st.integers(1, 3), "inner_group_num": st.integers(1, 2)}


@twice
@given(each(of("Albert", "ForPreTraining"), embedding_size=st.sampled_from([5, 12]), **GROUPS))
def test_albert(cases: tuple[tuple[str, Drawn, Drawn], ...]) -> None:
    for name, drawn, more in cases:
        groups = min(more["num_hidden_groups"], drawn["num_hidden_layers"])
        agrees(build(name, shape(drawn, **more | {"num_hidden_groups": groups})), EXACT)


RENAMED = {
    "n_heads": "num_attention_heads",
    "n_layers": "num_hidden_layers",
    "hidden_dim": "intermediate_size",
    "activation": "hidden_act",
    "tie_word_embeddings": "tie_word_embeddings",
    "num_labels": "num_labels",
}


@twice
@given(each(of("DistilBert"), sinusoidal_pos_embds=st.booleans()))
def test_distilbert(cases: tuple[tuple[str, Drawn, Drawn], ...]) -> None:
    for name, drawn, more in cases:
        options = {theirs: drawn[ours] for theirs, ours in RENAMED.items()}
        sized = {"vocab_size": VOCABULARY, "dim": 12, "max_position_embeddings": 15}
        agrees(build(name, options | sized | more), EXACT)


@twice
@given(each(of("RoFormer"), embedding_size=st.sampled_from([None, 12, 5]), rotary_value=st.booleans()))
def test_roformer(cases: tuple[tuple[str, Drawn, Drawn], ...]) -> None:
    def waves(model: Any) -> None:
        """Their table of sines is a parameter: it was drawn at random like all others."""
        table = model.base_model.encoder.embed_positions
        table.weight.copy_(table.create_weight())

    for name, drawn, more in cases:
        agrees(build(name, shape(drawn, **more)), ROUNDED, waves)


@twice
@given(each(of("LayoutLM"), max_2d_position_embeddings=st.sampled_from([10, 17])))
def test_layoutlm(cases: tuple[tuple[str, Drawn, Drawn], ...]) -> None:
    for name, drawn, more in cases:
        agrees(build(name, shape(drawn, **more)), ROUNDED)


@twice
@given(each(of("Electra", "ForPreTraining"), embedding_size=st.sampled_from([5, 12])))
def test_electra(cases: tuple[tuple[str, Drawn, Drawn], ...]) -> None:
    for name, drawn, more in cases:
        agrees(build(name, shape(drawn, **more)), EXACT)


@twice
@given(each(of("MPNet")))
def test_mpnet(cases: tuple[tuple[str, Drawn, Drawn], ...]) -> None:
    for name, drawn, _ in cases:
        agrees(build(name, shape({**drawn, "type_vocab_size": 0}, pad_token_id=1)), EXACT)


DISENTANGLED = {
    "relative_attention": st.sampled_from([True, True, True, False]),
    "position_buckets": st.sampled_from([-1, 2, 4, 5]),
    "max_relative_positions": st.sampled_from([-1, 4, 7]),
    "pos_att_type": st.sampled_from(["p2c|c2p", ["p2c", "c2p"], ["c2p"], ["p2c"], None]),
    "share_att_key": st.booleans(),
    "norm_rel_ebd": st.sampled_from(["layer_norm", "none"]),
    "position_biased_input": st.booleans(),
    "type_vocab_size": st.integers(0, 2),
    "embedding_size": st.sampled_from([12, 5]),
    "conv_kernel_size": st.sampled_from([0, 1, 3, 5]),
    "conv_groups": st.sampled_from([1, 3]),
    "conv_act": st.sampled_from(["tanh", "gelu"]),
    "pooler_hidden_act": st.sampled_from(["gelu", "tanh"]),
    "legacy": st.booleans(),
}


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # theirs
@settings(max_examples=4, deadline=None, derandomize=True)
@given(each(of("DebertaV2", "ForMaskedLM"), **DISENTANGLED))
def test_deberta(cases: tuple[tuple[str, Drawn, Drawn], ...]) -> None:
    for name, drawn, more in cases:
        wide = {} if more["legacy"] else {"embedding_size": 12}  # their enhanced head is as wide as the stream
        agrees(build(name, shape(drawn, **more | wide)), ROUNDED)
