"""Any checkpoint is measured as its own library would measure it: `transformers` computes every number again, live."""

from __future__ import annotations

import json
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from sacrebleu.metrics.bleu import BLEU
from tokenizers import Tokenizer as Library
from tokenizers import models, pre_tokenizers, processors
from typer.testing import CliRunner

import heed
from heed.cli import app
from heed.core.errors import InputError
from heed.pipelines.text import Text2TextGeneration
from heed.tasks.measures import Answering, Choosing, Masking, Reading, measure_of, windows
from tests.weights.live import saved

HF: Any = transformers

WORDS = ("<pad>", "<s>", "</s>", "<mask>", "<unk>", *(f"w{index}" for index in range(27)))
SIZES: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
CLOSE = 1e-6  # transformers takes its loss of float32 logits, whatever the model is
EXACT = 1e-9


def spoken(folder: Path, frame: str = "$A") -> None:
    """A tokenizer of words, each a token, in such a frame."""
    inner = Library(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.add_special_tokens(list(WORDS[:5]))
    if frame != "$A":
        inner.post_processor = processors.TemplateProcessing(single=frame, special_tokens=[("<s>", 1), ("</s>", 2)])
    inner.save(str(folder / "tokenizer.json"))
    named = {"pad_token": "<pad>", "mask_token": "<mask>", "eos_token": "</s>", "bos_token": "<s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))


def text_of(count: int, seed: int = 0) -> str:
    return " ".join(np.random.default_rng(seed).choice(WORDS[5:], count))


def doubled(folder: Path) -> heed.pipelines.Pipeline:
    """As heed loads it, in float64."""
    pipeline = heed.load(folder)
    pipeline.model.double()
    return pipeline


@pytest.fixture
def book(tmp_path: Path) -> Path:
    (tmp_path / "book.txt").write_text(text_of(101))
    return tmp_path / "book.txt"


# --- windows ---


@pytest.mark.parametrize(
    ("length", "context", "stride"), [(50, 16, 8), (50, 16, 15), (7, 16, 8), (33, 4, 1), (2, 2, 1)]
)
def test_every_token_but_the_first_is_predicted_once_with_enough_before_it(
    length: int, context: int, stride: int
) -> None:
    tokens, predicted = np.arange(length, dtype=np.int32), list[int]()
    for window in windows(tokens, context, stride):
        assert len(window.tokens) <= context
        asked = window.tokens[len(window.tokens) - window.asked :].tolist()
        before = len(window.tokens) - window.asked
        assert before >= min(asked[0], context - stride)
        predicted += asked
    assert predicted == list(range(1, length))


# --- language models ---


@torch.no_grad()
def strided(model: Any, ids: torch.Tensor, context: int, stride: int) -> tuple[float, int]:
    """The sum that transformers' own loss gives, window by window, as its guide to perplexity goes through a text."""
    nats, tokens, before = 0.0, 0, 0
    for begin in range(0, ids.shape[1], stride):
        end = min(begin + context, ids.shape[1])
        window, labels = ids[:, begin:end], ids[:, begin:end].clone()
        labels[:, : before - end] = -100
        count = int((labels[:, 1:] != -100).sum())
        nats += float(model(window, labels=labels).loss) * count
        tokens, before = tokens + count, end
        if end == ids.shape[1]:
            break
    return nats, tokens


def gpt2() -> Any:
    sizes = {"vocab_size": len(WORDS), "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
    return HF.GPT2LMHeadModel(HF.GPT2Config(**sizes, bos_token_id=1, eos_token_id=2))


def llama() -> Any:
    sizes = {"vocab_size": len(WORDS), "max_position_embeddings": 64, **SIZES}
    return HF.LlamaForCausalLM(HF.LlamaConfig(**sizes, bos_token_id=1, eos_token_id=2))


@pytest.mark.parametrize(("model", "frame"), [(gpt2, "$A"), (llama, "<s> $A")], ids=["gpt2", "llama"])
@pytest.mark.parametrize("stride", [None, 5, 31])
def test_the_loss_of_a_text_is_that_of_transformers(
    model: Any, frame: str, stride: int | None, book: Path, tmp_path: Path
) -> None:
    theirs = saved(model(), tmp_path / "a")
    spoken(tmp_path / "a", frame)
    found = heed.eval(doubled(tmp_path / "a"), data=book, context=32, stride=stride, quiet=True)
    ids = torch.tensor([[1] * (frame != "$A") + [WORDS.index(word) for word in book.read_text().split()]])
    nats, tokens = strided(theirs, ids, 32, stride or 16)
    assert found["tokens"] == tokens == ids.shape[1] - 1
    assert found["loss"] == pytest.approx(nats / tokens, rel=CLOSE)
    assert found["perplexity"] == pytest.approx(exp(nats / tokens), rel=CLOSE)
    unpredicted = 0 if frame != "$A" else len(book.read_text().split()[0])
    assert found["bytes"] == book.stat().st_size - unpredicted
    assert found["bits_per_byte"] == pytest.approx(nats / log(2) / found["bytes"], rel=CLOSE)
    assert (found["context"], found["stride"]) == (32, stride or 16)


def test_a_folder_is_read_text_by_text(tmp_path: Path) -> None:
    theirs = saved(gpt2(), tmp_path / "a")
    spoken(tmp_path / "a")
    (tmp_path / "texts").mkdir()
    nats, tokens = 0.0, 0
    for number, count in enumerate((40, 9, 70)):
        (tmp_path / "texts" / f"{number}.txt").write_text(text_of(count, number))
        ids = torch.tensor([[WORDS.index(word) for word in text_of(count, number).split()]])
        more = strided(theirs, ids, 32, 16)
        nats, tokens = nats + more[0], tokens + more[1]
    found = heed.eval(doubled(tmp_path / "a"), data=tmp_path / "texts", quiet=True)
    assert (found["tokens"], found["context"]) == (tokens, 32)  # as many as it has places for
    assert found["loss"] == pytest.approx(nats / tokens, rel=CLOSE)


def test_a_window_is_as_long_as_the_texts_the_model_is_used_to(book: Path, tmp_path: Path) -> None:
    """Rotary positions have places for any number of tokens; config.json tells how many it was trained on."""
    saved(llama(), tmp_path / "a")
    spoken(tmp_path / "a")
    found = heed.eval(tmp_path / "a", data=book, quiet=True)
    assert (found["context"], found["stride"]) == (64, 32)
    told = CliRunner().invoke(app, ["eval", str(tmp_path / "a"), "--data", str(book), "--json"]).stdout
    assert json.loads(told) == dict(found)


def test_windows_that_cannot_be(book: Path, tmp_path: Path) -> None:
    saved(gpt2(), tmp_path / "a")
    spoken(tmp_path / "a")
    for wrong, words in {
        "context": "context is 40; the model has places for 2 to 32 tokens",
        "stride": "stride is 40; it must be 1 at least and below the context, 32",
    }.items():
        with pytest.raises(InputError, match=words):
            heed.eval(tmp_path / "a", data=book, quiet=True, **{wrong: 40})  # type: ignore[arg-type]
    (tmp_path / "one.txt").write_text("w1")
    with pytest.raises(InputError, match="there is nothing to predict"):
        heed.eval(tmp_path / "a", data=tmp_path / "one.txt", quiet=True)


def test_tokens_that_the_tokenizer_does_not_know_are_counted(tmp_path: Path) -> None:
    saved(gpt2(), tmp_path / "a")
    spoken(tmp_path / "a")
    (tmp_path / "strange.txt").write_text("w1 hello w2 world")
    assert heed.eval(tmp_path / "a", data=tmp_path / "strange.txt", quiet=True)["unknown_tokens"] == 2


# --- encoder-decoders ---


def t5() -> Any:
    sizes = {"vocab_size": len(WORDS), "d_model": 16, "d_ff": 24, "d_kv": 8, "num_layers": 2, "num_heads": 2}
    special = {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 2}
    return HF.T5ForConditionalGeneration(HF.T5Config(**sizes, **special))


def test_an_encoder_decoder_is_measured_by_pairs(tmp_path: Path) -> None:
    theirs = saved(t5(), tmp_path / "a")
    spoken(tmp_path / "a", "$A </s>")
    pairs = [(text_of(6, seed), text_of(4 + seed % 3, seed + 50)) for seed in range(20)]
    (tmp_path / "pairs.tsv").write_text("source\ttarget\n" + "".join("\t".join(pair) + "\n" for pair in pairs))
    ours = doubled(tmp_path / "a")
    found = heed.eval(ours, data=tmp_path / "pairs.tsv", quiet=True)
    nats, tokens = 0.0, 0
    for source, target in pairs:
        given, labels = (torch.tensor([[*map(WORDS.index, text.split()), 2]]) for text in (source, target))
        with torch.no_grad():
            nats += float(theirs(given, labels=labels).loss) * labels.shape[1]
        tokens += labels.shape[1]
    assert found["loss"] == pytest.approx(nats / tokens, rel=CLOSE)
    assert found["pairs"] == 20
    answers = [ours.translate([source])[0] for source, _ in pairs]
    assert found["bleu"] == pytest.approx(BLEU().corpus_score(answers, [[target for _, target in pairs]]).score)
    assert found["left_out"] == 0
    (tmp_path / "long.tsv").write_text(
        f"source\ttarget\n{text_of(2000, 1)}\t{text_of(4, 2)}\n" + "\t".join(pairs[0]) + "\n"
    )
    assert isinstance(ours, Text2TextGeneration)
    ours.longest = 7
    some = heed.eval(ours, data=tmp_path / "long.tsv", quiet=True)
    assert (some["pairs"], some["left_out"]) == (1, 1)


# --- encoders ---


def bert(kind: str, **config: Any) -> Any:
    sizes = {"vocab_size": len(WORDS), "max_position_embeddings": 16, "pad_token_id": 0, "type_vocab_size": 2}
    return getattr(HF, kind)(HF.BertConfig(**SIZES, **sizes, **config))


def test_a_masked_language_model_has_a_pseudo_perplexity(tmp_path: Path) -> None:
    theirs = saved(bert("BertForMaskedLM"), tmp_path / "a")
    spoken(tmp_path / "a", "<s> $A </s>")
    text = text_of(20)
    (tmp_path / "a.txt").write_text(text)
    found = heed.eval(doubled(tmp_path / "a"), data=tmp_path / "a.txt", quiet=True)
    words, nats, right = list(map(WORDS.index, text.split())), 0.0, 0
    for piece in (words[:14], words[14:]):  # sixteen places, two of them for the frame
        for place, token in enumerate(piece):
            ids = [1, *piece, 2]
            ids[place + 1] = 3
            with torch.no_grad():
                logits = theirs(torch.tensor([ids])).logits[0, place + 1]
            nats -= float(logits.log_softmax(-1)[token])
            right += int(logits.argmax()) == token
    assert found["pseudo_loss"] == pytest.approx(nats / 20, rel=EXACT)
    assert found["pseudo_perplexity"] == pytest.approx(exp(nats / 20), rel=EXACT)
    assert found["masked_accuracy"] == pytest.approx(100 * right / 20)


def test_a_classifier_is_measured_by_labels(tmp_path: Path) -> None:
    names = {"id2label": {0: "bad", 1: "good", 2: "so-so"}, "label2id": {"bad": 0, "good": 1, "so-so": 2}}
    theirs = saved(bert("BertForSequenceClassification", num_labels=3, **names), tmp_path / "a")
    spoken(tmp_path / "a", "<s> $A </s>")
    texts, draw = [text_of(8, seed) for seed in range(40)], np.random.default_rng(3)
    labels = [["bad", "good", "so-so"][draw.integers(3)] for _ in texts]
    with torch.no_grad():
        best = [int(theirs(torch.tensor([[1, *map(WORDS.index, text.split()), 2]])).logits.argmax()) for text in texts]
    wanted = 100 * sum(["bad", "good", "so-so"][one] == label for one, label in zip(best, labels, strict=True)) / 40
    (tmp_path / "a.csv").write_text("label,text\n" + "".join(f"{b},{a}\n" for a, b in zip(texts, labels, strict=True)))
    assert heed.eval(tmp_path / "a", data=tmp_path / "a.csv", quiet=True)["accuracy"] == pytest.approx(wanted)
    numbers = [["bad", "good", "so-so"].index(label) for label in labels]
    (tmp_path / "b.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in zip(texts, numbers, strict=True)))
    assert heed.eval(tmp_path / "a", data=tmp_path / "b.tsv", quiet=True)["accuracy"] == pytest.approx(wanted)
    (tmp_path / "c.tsv").write_text("w1 w2\tgod\n")
    with pytest.raises(
        InputError, match=r"'god' is not a class of this model, which has bad, good, so-so; did you mean"
    ):
        heed.eval(tmp_path / "a", data=tmp_path / "c.tsv", quiet=True)


# --- what cannot be ---


def test_each_pipeline_has_its_measure_or_is_refused(tmp_path: Path) -> None:
    made = {
        "gpt2": (gpt2(), Reading),
        "t5": (t5(), Answering),
        "masked": (bert("BertForMaskedLM"), Masking),
        "classes": (bert("BertForSequenceClassification", num_labels=2), Choosing),
    }
    for name, (model, kind) in made.items():
        saved(model, tmp_path / name)
        spoken(tmp_path / name, "<s> $A </s>")
        assert isinstance(measure_of(heed.load(tmp_path / name)), kind)
    for name, words in {"t5": "pair by pair", "masked": "masked in turn", "classes": "text by text"}.items():
        with pytest.raises(InputError, match=f"stride is for the windows of a text: .*{words}"):
            measure_of(heed.load(tmp_path / name), stride=3)
    saved(bert("BertModel"), tmp_path / "bare")
    spoken(tmp_path / "bare")
    with pytest.raises(InputError, match="this cannot be evaluated: it is an encoder.* Language models, masked"):
        heed.eval(tmp_path / "bare", data="x.txt", quiet=True)
