"""Checkpoints of BERT's kind as one meets them: bare, old, tied, half used; and what is refused."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from heed import weights
from heed.core.contract import Where
from heed.core.errors import WeightsError
from heed.models import Encoder
from heed.parts.outputs.heads import Pooled
from heed.weights import replay
from tests.weights.families.encoders import EXACT, LENGTH, VOCABULARY, build, inputs_for, record, same, shape, told
from tests.weights.live import close, ids, saved

SIZES = {"num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 16}
Tensors = dict[str, Tensor]


def made(name: str, folder: Path, **options: Any) -> Any:
    """A model of `transformers` with random weights, saved."""
    return saved(build(name, shape(SIZES, **options)), folder)


def edit(folder: Path, change: dict[str, Tensor | None], **config: Any) -> None:
    """Tensors added or, with None, taken away; entries of the config set."""
    path = folder / "model.safetensors"
    tensors: dict[str, Tensor | None] = {**load_file(path), **change}
    save_file({name: one.clone() for name, one in tensors.items() if one is not None}, path, {"format": "pt"})
    told = json.loads((folder / "config.json").read_text()) | config
    (folder / "config.json").write_text(json.dumps(told))


def opened(folder: Path) -> Encoder:
    model = weights.load(folder).model
    assert isinstance(model, Encoder)
    return model


@torch.no_grad()
def answer(model: Encoder, kind: str, tokens: Tensor) -> Tensor:
    where = Where.run(*tokens.shape)
    found: Tensor = model.heads[kind](model(tokens, where)[0], where)
    return found


@torch.no_grad()
def test_a_sentence_embedder(tmp_path: Path) -> None:
    """A bare BertModel, no prefix, with the buffer that older libraries stored."""
    theirs = made("BertModel", tmp_path)
    edit(tmp_path, {"embeddings.position_ids": torch.arange(15)[None]})
    model, tokens = opened(tmp_path), ids(2, LENGTH, VOCABULARY)
    wanted = theirs(input_ids=tokens)
    close(model(tokens, Where.run(2, LENGTH))[0], wanted.last_hidden_state, EXACT)
    close(answer(model, "pooled", tokens), wanted.pooler_output, EXACT)
    edit(tmp_path, {f"pooler.dense.{what}": None for what in ("weight", "bias")})
    assert not opened(tmp_path).heads


@torch.no_grad()
def test_the_first_berts(tmp_path: Path) -> None:
    """Norms called gamma and beta, tied tensors stored twice, heads of both tasks, named for one of them."""
    theirs = made("BertForPreTraining", tmp_path)
    theirs.set_attn_implementation("eager")
    held = load_file(tmp_path / "model.safetensors")
    old = {
        name: name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        for name in held
    }
    doubled = {
        "cls.predictions.decoder.weight": held["bert.embeddings.word_embeddings.weight"],
        "cls.predictions.decoder.bias": held["cls.predictions.bias"],
    }
    edit(
        tmp_path,
        dict.fromkeys(held) | {old[name]: held[name] for name in held} | doubled,
        architectures=["BertForMaskedLM"],
    )
    inputs = {name: one for name, one in inputs_for(theirs).items() if name != "next_sentence_label"}
    wanted = told(theirs, inputs)
    wanted["logits"] = wanted.pop("prediction_logits")
    del wanted["seq_relationship_logits"]
    record(tmp_path, inputs, wanted)
    same(replay(tmp_path), wanted, torch.ones_like(inputs["attention_mask"], dtype=torch.bool), EXACT)
    weights.write(weights.load(tmp_path), tmp_path / "ours")
    assert load_file(tmp_path / "ours" / "model.safetensors").keys() == held.keys()


@pytest.mark.parametrize("name", ["BertForMaskedLM", "AlbertForMaskedLM", "RobertaForMaskedLM"])
def test_an_untied_decoder_with_the_one_bias_that_older_libraries_stored(name: str, tmp_path: Path) -> None:
    theirs = made(name, tmp_path, tie_word_embeddings=False)
    held = load_file(tmp_path / "model.safetensors")
    (inner,) = (key for key in held if key.endswith("decoder.bias"))
    edit(tmp_path, {inner: None, inner.replace("decoder.", ""): held[inner]})
    tokens = ids(2, LENGTH, VOCABULARY)
    with torch.no_grad():
        close(answer(opened(tmp_path), "masked", tokens), theirs(input_ids=tokens).logits, EXACT)


def test_tensors_that_are_tied_must_be_equal(tmp_path: Path) -> None:
    made("BertForMaskedLM", tmp_path)
    edit(tmp_path, {"cls.predictions.decoder.weight": torch.zeros(VOCABULARY, 12, dtype=torch.float64)})
    with pytest.raises(WeightsError, match="decoder.weight are tied in this model, but differ by up to"):
        weights.load(tmp_path)


def test_a_classifier_of_tokens_may_have_a_pooler_beside_it(tmp_path: Path) -> None:
    theirs = made("BertForTokenClassification", tmp_path, num_labels=5)
    pooler = {"bert.pooler.dense.weight": torch.zeros(12, 12), "bert.pooler.dense.bias": torch.zeros(12)}
    edit(tmp_path, {name: one.double() for name, one in pooler.items()})
    model, tokens = opened(tmp_path), ids(2, LENGTH, VOCABULARY)
    assert list(model.heads) == ["pooled", "tagged"]
    with torch.no_grad():
        close(answer(model, "tagged", tokens), theirs(input_ids=tokens).logits, EXACT)
    for untold in (None, ["BertForSomething"]):
        edit(tmp_path, {}, architectures=untold)
        with pytest.raises(WeightsError, match="classifier.weight may be about texts or about tokens"):
            weights.load(tmp_path)


def test_choices_are_scored_one_by_one(tmp_path: Path) -> None:
    theirs = made("BertForMultipleChoice", tmp_path)
    tokens = ids(2, LENGTH, VOCABULARY)
    with torch.no_grad():
        wanted = theirs(input_ids=tokens[:, None]).logits
        close(answer(opened(tmp_path), "pooled", tokens), wanted, EXACT)


def test_a_pooler_that_the_classifier_does_not_read_is_passed_over(tmp_path: Path) -> None:
    theirs = made("RobertaForSequenceClassification", tmp_path, pad_token_id=1)
    unread = {"roberta.pooler.dense.weight": torch.ones(12, 12), "roberta.pooler.dense.bias": torch.ones(12)}
    edit(tmp_path, {name: one.double() for name, one in unread.items()})
    model, tokens = opened(tmp_path), ids(2, LENGTH, VOCABULARY)
    assert isinstance(model.heads["pooled"], Pooled)
    with torch.no_grad():
        close(answer(model, "pooled", tokens), theirs(input_ids=tokens).logits, EXACT)


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # theirs
def test_the_head_that_deberta_v3_was_trained_with(tmp_path: Path) -> None:
    """Its files do not say `legacy = false`; there is a second head, and positions that are not added."""
    relative = {"relative_attention": True, "pos_att_type": "p2c|c2p", "position_buckets": 4, "share_att_key": True}
    options = {"position_biased_input": False, "type_vocab_size": 0, "norm_rel_ebd": "layer_norm"}
    theirs = made("DebertaV2ForMaskedLM", tmp_path, legacy=False, **relative, **options)
    more = {f"mask_predictions.{layer}.bias": torch.ones(12) for layer in ("dense", "LayerNorm", "classifier")}
    edit(tmp_path, {**more, "deberta.embeddings.position_embeddings.weight": torch.ones(15, 12)}, legacy=True)
    tokens = ids(2, LENGTH, VOCABULARY)
    with torch.no_grad():
        close(answer(opened(tmp_path), "masked", tokens), theirs(input_ids=tokens).logits, 3e-6)


@torch.no_grad()
def test_roberta_counts_ids_and_not_what_is_shown(tmp_path: Path) -> None:
    """Hidden tokens that are no padding have a place all the same; padding ids have one, shown or not."""
    theirs = made("RobertaModel", tmp_path, pad_token_id=1)
    theirs.set_attn_implementation("eager")
    tokens, mask = ids(2, LENGTH, VOCABULARY), torch.ones(2, LENGTH, dtype=torch.long)
    mask[0, 2:4] = 0
    mask[1, :3] = 0
    tokens[1, :4] = 1
    tokens[0, 5] = 1
    for inputs in ({"input_ids": tokens, "attention_mask": mask}, {"input_ids": tokens}):
        wanted = told(theirs, inputs)
        record(tmp_path, inputs, wanted)
        same(replay(tmp_path), wanted, torch.ones_like(mask, dtype=torch.bool), EXACT)


def test_half_precision_waves_are_known_and_others_are_not(tmp_path: Path) -> None:
    theirs = made("RoFormerForMaskedLM", tmp_path)
    table = theirs.roformer.encoder.embed_positions
    name, waves = "roformer.encoder.embed_positions.weight", table.create_weight()
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        edit(tmp_path, {name: waves.to(dtype)})
        assert "masked" in opened(tmp_path).heads
    edit(tmp_path, {name: waves.roll(1, -1)})
    with pytest.raises(WeightsError, match=r"embed_positions.weight \[15, 4\] is not the constant"):
        weights.load(tmp_path)
    edit(tmp_path, {name: None})
    assert "masked" in opened(tmp_path).heads


BERT_REFUSES = {
    "is_decoder": (True, "needed is the head of a language model and no other"),
    "add_cross_attention": (True, "together with its encoder"),
    "position_embedding_type": ("relative_key", "'absolute' one alone"),
    "hidden_act": ("gelu_11", "the activation 'gelu_11'"),
    "num_hidden_layers": (10**9, "it claims 1000000000 layers"),
    "hidden_size": (10**9, "none of them wider than"),
    "num_attention_heads": (10**9, "does not divide into 1000000000 heads"),
    "intermediate_size": (10**12, "needed is"),
    "vocab_size": (10**15, "needed is"),
    "max_position_embeddings": (10**30, "cannot be built"),
    "type_vocab_size": (0, "token_type_embeddings.weight .* is unknown"),
    "layer_norm_eps": (-1.0, "layer_norm_eps"),
}
OTHERS_REFUSE: dict[str, dict[str, tuple[Any, str]]] = {
    "AlbertModel": {
        "num_hidden_layers": (10**9, "heed reads up to 1024 layers"),
        "num_hidden_groups": (10**9, "it claims 1000000000 layers"),
        "inner_group_num": (10**400, "it claims"),
        "embedding_size": (10**12, "needed is"),
    },
    "RobertaModel": {"pad_token_id": (10**9, "length is -"), "max_position_embeddings": (1, "length is -")},
    "DistilBertModel": {"n_layers": (10**9, "it claims"), "dim": (10**9, "wider")},
    "DebertaV2Model": {
        "pos_att_type": ("p2p|c2p", "heed knows c2p and p2c"),
        "norm_rel_ebd": ("batch_norm", "layer_norm or none"),
        "position_buckets": (10**12, "buckets cannot tell"),
        "max_relative_positions": (10**12, "needed is"),
        "attention_head_size": (10**9, "needed is"),
        "conv_kernel_size": (4, "has no middle"),
        "conv_groups": (5, "does not divide into 5 groups"),
    },
    "RoFormerModel": {"num_attention_heads": (12, "channels turn two by two"), "rotary_value": (1, "rotary_value")},
    "MPNetModel": {"relative_attention_num_buckets": (16, "is 16, not 32")},
    "LayoutLMModel": {"max_2d_position_embeddings": (10**12, "needed is")},
}
REFUSED = [("BertModel", *case) for case in BERT_REFUSES.items()]
REFUSED += [(name, *case) for name, cases in OTHERS_REFUSE.items() for case in cases.items()]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One checkpoint of each family."""
    base: dict[str, Any] = {"relative_attention": True, "pos_att_type": ["c2p"], "conv_kernel_size": 3}
    folders = {}
    for name in ("BertModel", *OTHERS_REFUSE):
        folders[name] = tmp_path_factory.mktemp(name)
        more: dict[str, Any] = {"DebertaV2Model": base, "RobertaModel": {"pad_token_id": 1}}.get(name, {})
        model = build(name, shape(SIZES, **more | ({"type_vocab_size": 0} if "MPNet" in name else {})))
        model.save_pretrained(folders[name])
    return folders


@pytest.mark.parametrize(("name", "field", "case"), REFUSED, ids=[f"{name}.{field}" for name, field, _ in REFUSED])
def test_a_config_that_cannot_be_is_refused_at_once(
    name: str, field: str, case: tuple[Any, str], plain: dict[str, Path], tmp_path: Path
) -> None:
    value, message = case
    for path in plain[name].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    edit(tmp_path, {}, **{field: value})
    begin = time.process_time()
    with pytest.raises(WeightsError, match=message):
        weights.load(tmp_path)
    assert time.process_time() - begin < 10, "what it claims would take minutes to build"


@pytest.mark.parametrize("shape", [(), (0, 12), (3,), (3, 2, 12)])
def test_a_head_of_another_shape_is_refused(shape: tuple[int, ...], tmp_path: Path) -> None:
    made("DistilBertForTokenClassification", tmp_path)
    edit(tmp_path, {"classifier.weight": torch.zeros(shape)})
    with pytest.raises(WeightsError, match=r"classifier.weight must be there with the shape \[labels, width\]"):
        weights.load(tmp_path)
