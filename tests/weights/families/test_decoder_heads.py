"""Decoders with heads beside `transformers`: classes of texts off the last token, labels of tokens, answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

import heed
from heed.core.errors import WeightsError
from heed.models import Decoder
from tests.pipelines.small import WORDS, worded
from tests.weights.live import close, ids, returns, saved

EXACT = 1e-10
ROUNDED = 3e-6  # where transformers computes a norm, a rotation or a softmax in float32, whatever the model is in
TEXTS, TOKENS, ANSWERS = "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"
ALL, NO_ANSWERS, NO_TOKENS = (TEXTS, TOKENS, ANSWERS), (TEXTS, TOKENS), (TEXTS, ANSWERS)
LENGTH, SHORT = 9, 5

NARROW: dict[str, Any] = {"vocab_size": len(WORDS), "num_labels": 3, "pad_token_id": 0}
SHAPE = {**NARROW, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
GROUPED = {**SHAPE, "num_key_value_heads": 1, "head_dim": 6, "max_position_embeddings": 32}
EXPERTS = {**GROUPED, "num_local_experts": 2, "num_experts": 2, "moe_intermediate_size": 8, "num_experts_per_tok": 1}
LATENT = {**GROUPED, "num_key_value_heads": 2, "kv_lora_rank": 6, "q_lora_rank": 6, "qk_rope_head_dim": 4}
LATENT |= {"qk_nope_head_dim": 6, "v_head_dim": 6, "first_k_dense_replace": 2, "head_dim": 4}
GPT = {**NARROW, "n_embd": 12, "n_layer": 2, "n_head": 2, "n_positions": 32}
KINDS: dict[str, tuple[tuple[str, ...], dict[str, Any], float]] = {
    "GPT2": (ALL, GPT, EXACT),
    "GPTBigCode": (NO_ANSWERS, GPT, EXACT),
    "GPTNeo": (
        ALL,
        {**NARROW, "hidden_size": 12, "num_layers": 2, "num_heads": 2, "attention_types": [[["global", "local"], 1]]},
        ROUNDED,
    ),
    "GPTJ": (NO_TOKENS, {**GPT, "rotary_dim": 4}, ROUNDED),
    "GPTNeoX": (ALL, SHAPE, ROUNDED),
    "Bloom": (ALL, {**NARROW, "hidden_size": 12, "n_layer": 2, "n_head": 2}, ROUNDED),
    "Falcon": (ALL, {**SHAPE, "ffn_hidden_size": 16}, ROUNDED),
    "Mpt": (ALL, {**NARROW, "d_model": 12, "n_layers": 2, "n_heads": 2}, ROUNDED),
    "OPT": (NO_TOKENS, {**SHAPE, "ffn_dim": 16, "word_embed_proj_dim": 12, "max_position_embeddings": 32}, EXACT),
    "Llama": (ALL, GROUPED, ROUNDED),
    "Mistral": (ALL, GROUPED, ROUNDED),
    "Mixtral": (NO_ANSWERS, EXPERTS, ROUNDED),
    "Qwen2": (ALL, GROUPED, ROUNDED),
    "Qwen3": (ALL, GROUPED, ROUNDED),
    "Gemma": (NO_ANSWERS, GROUPED, ROUNDED),
    "Gemma2": (NO_ANSWERS, GROUPED, ROUNDED),
    "Phi3": (NO_ANSWERS, GROUPED, ROUNDED),
    "Arcee": (ALL, GROUPED, ROUNDED),
    "DeepseekV3": (NO_ANSWERS, LATENT, ROUNDED),
}
CLASSES = [f"{family}{head}" for family, (heads, _, _) in KINDS.items() for head in heads]


def made(name: str, **more: Any) -> Any:
    """A small model of the reference library."""
    family = next(family for family in sorted(KINDS, key=len, reverse=True) if name.startswith(family))
    kind: Any = getattr(transformers, name)
    answers = {"num_labels": 2} if ANSWERS in name else {}
    return kind(kind.config_class(**KINDS[family][1] | answers | more))


def within(name: str) -> float:
    return next(KINDS[family][2] for family in sorted(KINDS, key=len, reverse=True) if name.startswith(family))


def _plain(model: Any) -> Any:
    """Without its fused experts, which want float32 and sizes that are multiples of four."""
    if "Mixtral" in type(model).__name__:
        model.set_experts_implementation("eager")
    return model


def padded() -> tuple[Tensor, Tensor]:
    """Two rows, the second of them short; and what is real."""
    tokens, mask = ids(2, LENGTH, len(WORDS)), torch.ones(2, LENGTH, dtype=torch.long)
    mask[1, SHORT:] = 0
    return tokens.masked_fill(mask == 0, 0), mask


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # theirs
@pytest.mark.parametrize("name", CLASSES)
@torch.no_grad()
def test_what_a_head_says_is_what_transformers_says(name: str, tmp_path: Path) -> None:
    model = _plain(saved(made(name), tmp_path / "theirs"))
    m = heed.load(tmp_path / "theirs")
    assert isinstance(m.model, Decoder)
    tokens, mask = padded()
    wanted, found = model(input_ids=tokens, attention_mask=mask), m(tokens, mask)
    outputs = ("start_logits", "end_logits") if ANSWERS in name else ("logits",)
    for output in outputs:
        theirs, ours = wanted[output], found[output]
        assert ours.shape == theirs.shape
        if TEXTS in name:
            close(ours, theirs, within(name))
        else:
            close(ours[0], theirs[0], within(name))
            close(ours[1, :SHORT], theirs[1, :SHORT], within(name))
        alone = m(tokens[1:, :SHORT])[output][0]  # a padded row is what the text is by itself, on either side
        close(ours[1] if TEXTS in name else ours[1, :SHORT], alone, EXACT)
        left = m(tokens.roll(LENGTH - SHORT, 1)[1:], mask.roll(LENGTH - SHORT, 1)[1:])[output][0]
        close(left if TEXTS in name else left[-SHORT:], alone, EXACT)

    assert m.opened is not None
    again = _plain(returns(m.opened, tmp_path / "ours", model))
    same = again(input_ids=tokens, attention_mask=mask)
    assert all(torch.equal(same[output], wanted[output]) for output in outputs)
    held = load_file(tmp_path / "ours" / "model.safetensors")
    assert held.keys() == load_file(tmp_path / "theirs" / "model.safetensors").keys()


@pytest.mark.parametrize("name", ["GPT2", "Llama", "OPT"])
@torch.no_grad()
def test_in_use(name: str, tmp_path: Path) -> None:
    """Texts of different lengths in one batch, one by one there: classes and answers."""
    texts = ["the cat sat on a mat and then it slept", "the dog ran"]
    model = saved(made(f"{name}{TEXTS}"), tmp_path / "texts")
    worded(tmp_path / "texts", framed=False)
    m = heed.load(tmp_path / "texts")
    assert set(m.can) >= {"embed", "classify"}
    for text, found in zip(texts, m.classify(texts), strict=True):
        words = torch.tensor([[WORDS.index(word) for word in text.split()]])
        p = model(input_ids=words).logits[0].softmax(-1)
        assert [one.p for one in found] == pytest.approx(p.sort(descending=True).values.tolist(), rel=1e-5)

    saved(made(f"{name}{ANSWERS}"), tmp_path / "answers")
    worded(tmp_path / "answers", framed=False)
    m = heed.load(tmp_path / "answers")
    answer = m.answer("the cat", texts[0])
    assert answer.text == texts[0][answer.start : answer.end] != ""
    both = m.answer(["the cat", "a dog"], texts)
    assert both[0].text == answer.text
    assert both[0].probability == pytest.approx(answer.probability, rel=1e-9)


@torch.no_grad()
def test_tags(tmp_path: Path) -> None:
    model = saved(made("GPT2ForTokenClassification"), tmp_path)
    worded(tmp_path, framed=False)
    text = "the cat sat on a mat"
    tagged = heed.load(tmp_path).tag(words=text.split())
    logits = model(input_ids=torch.tensor([[WORDS.index(word) for word in text.split()]])).logits[0]
    assert [label.label for _, label in tagged] == [f"LABEL_{index}" for index in logits.argmax(-1).tolist()]


def test_a_score_with_a_bias_is_of_tokens_unless_the_architecture_says_otherwise(tmp_path: Path) -> None:
    saved(made("LlamaForTokenClassification"), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for architectures, kind in ((None, "tagged"), (["LlamaForSequenceClassification"], "pooled")):
        (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": architectures}))
        m = heed.load(tmp_path)
        assert isinstance(m.model, Decoder)
        assert list(m.model.heads) == [kind]


@pytest.mark.parametrize("name", ["GPT2ForSequenceClassification", "LlamaForSequenceClassification"])
@pytest.mark.parametrize("shape", [(3, 11), (3,), (0, 12), (3, 12, 1)])
def test_a_head_that_does_not_fit_is_refused(name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    saved(made(name), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file({**tensors, "score.weight": torch.zeros(shape)}, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match=r"score\.weight"):
        heed.load(tmp_path)


def test_a_language_model_without_its_head_is_still_refused(tmp_path: Path) -> None:
    saved(made("LlamaForSequenceClassification"), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["score.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match=r"lm_head\.weight"):
        heed.load(tmp_path)
