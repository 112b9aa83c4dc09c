"""heed.load, heed run and heed convert on other people's checkpoints, with tokenizers, from one command to the next."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from typer.testing import CliRunner

import heed
from heed.cli import app
from heed.core.errors import InputError, RunError, WeightsError
from heed.pipelines import GenerationConfig, Text2TextGeneration, TextGeneration
from heed.pipelines.checkpoint import Bare, _labels
from heed.pipelines.encoder import EncoderPipeline
from tests.pipelines.small import WORDS, worded
from tests.weights.support import GOLDEN

HF: Any = transformers
HF.utils.logging.disable_progress_bar()

RUNNER = CliRunner()


def made(model: Any, folder: Path, **tokenizer: bool) -> Any:
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    model.eval().save_pretrained(folder)
    worded(folder, **tokenizer)
    return model


SMALL = {"vocab_size": len(WORDS), "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
BERT = {**SMALL, "intermediate_size": 30, "max_position_embeddings": 20}


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    config = HF.LlamaConfig(**SMALL, intermediate_size=40, num_key_value_heads=2, bos_token_id=1, eos_token_id=2)
    made(HF.LlamaForCausalLM(config), tmp_path / "llama", framed=False, chat=True)
    return tmp_path / "llama"


def run(*words: str, code: int = 0, stdin: str | None = None) -> str:
    found = RUNNER.invoke(app, ["run", *words], input=stdin)
    assert found.exit_code == code, found.output
    return found.stdout


# --- language models ---


def test_a_language_model_writes_what_the_reference_writes(llama: Path) -> None:
    model = heed.load(llama)
    assert isinstance(model, TextGeneration)
    theirs = HF.LlamaForCausalLM.from_pretrained(llama).eval()
    ids = torch.tensor([[WORDS.index(word) for word in ("the", "cat", "sat")]])
    wanted = theirs.generate(ids, max_new_tokens=7, do_sample=False, pad_token_id=0)[0, 3:].tolist()
    wanted = wanted[: wanted.index(2)] if 2 in wanted else wanted
    assert model.tokenizer.encode(model.generate("the cat sat", GenerationConfig(max_new_tokens=7))) == [
        i for i in wanted if i > 4
    ]
    assert "".join(model.stream("the cat sat", GenerationConfig(max_new_tokens=7))) == model.generate(
        "the cat sat", GenerationConfig(max_new_tokens=7)
    )
    assert (
        run(str(llama), "the cat sat", "--limit", "7").strip()
        == ("the cat sat" + model.generate("the cat sat", GenerationConfig(max_new_tokens=7))).strip()
    )


def test_a_chat_goes_on_from_all_that_was_said(llama: Path) -> None:
    model = heed.load(llama)
    said = [{"role": "user", "content": "the cat"}]
    answer = model.chat(said, GenerationConfig(max_new_tokens=5))
    assert answer == model.chat(said, GenerationConfig(max_new_tokens=5))
    lines = run(str(llama), "--chat", "--limit", "5", stdin="the cat\n\nthe dog\n").splitlines()
    more = [*said, {"role": "assistant", "content": answer}, {"role": "user", "content": "the dog"}]
    assert lines == [answer, model.chat(more, GenerationConfig(max_new_tokens=5))]
    told = json.loads(run(str(llama), "--chat", "--limit", "5", "--json", "--system", "it slept", "the cat"))
    assert told["role"] == "assistant"
    assert "add --chat" in RUNNER.invoke(app, ["run", str(llama), "--system", "it slept"]).output


def test_without_a_template_there_is_no_chat(llama: Path) -> None:
    worded(llama, framed=False)
    with pytest.raises(InputError, match="no chat template"):
        heed.load(llama).chat([{"role": "user", "content": "the cat"}])


# --- encoders ---


def test_an_encoder_fills_masks_and_embeds(tmp_path: Path) -> None:
    theirs = made(HF.BertForMaskedLM(HF.BertConfig(**BERT)), tmp_path / "bert")
    model = heed.load(tmp_path / "bert")
    assert isinstance(model, EncoderPipeline)
    (guesses,) = model.fill("the [MASK] sat", top_k=3)
    ids = torch.tensor([[1, WORDS.index("the"), 3, WORDS.index("sat"), 2]])
    with torch.no_grad():
        p = theirs(input_ids=ids).logits[0, 2].softmax(-1)
    assert [guess.p for guess in guesses] == pytest.approx(p.topk(3).values.tolist(), rel=1e-4)
    assert len(model.fill("[MASK] cat [MASK]")) == 2
    vectors = model.embed(["the cat sat on a mat", "dog", "the cat sat on a mat"])
    assert torch.allclose(vectors[0], vectors[2], atol=1e-6)
    assert torch.allclose(vectors.norm(dim=1), torch.ones(3))
    shown = [float(line.split("%")[0]) for line in run(str(tmp_path / "bert"), "the [MASK]").splitlines()]
    assert shown == pytest.approx([100 * guess.p for guess in model.fill("the [MASK]")[0]], abs=0.06)
    with pytest.raises(InputError, match=r"holds no \[MASK\]"):
        model.fill("the cat")
    with pytest.raises(InputError, match=r"mask of this model is \[MASK\], not <mask>; write \[MASK\] where"):
        model.respond("the <mask> sat")
    with pytest.raises(InputError, match="cannot generate: it is an encoder"):
        model.generate("the cat")


def test_vectors_are_those_of_the_reference(tmp_path: Path) -> None:
    """Ragged texts, mean over real tokens; longer texts than there are places are cut, and keep their end."""
    theirs = made(HF.BertModel(HF.BertConfig(**BERT)), tmp_path / "bert")
    model = heed.load(tmp_path / "bert")
    texts = ["the cat", "dog ran home and then it slept", "a mat " * 30]
    rows = [[1, *(WORDS.index(word) for word in text.split()), 2] for text in texts]
    rows[2] = [*rows[2][:19], 2]
    for text, ids, vector in zip(texts, rows, model.embed(texts), strict=True):
        with torch.no_grad():
            wanted = theirs(input_ids=torch.tensor([ids])).last_hidden_state[0].mean(0)
        assert torch.allclose(vector, wanted / wanted.norm(), atol=1e-5), text


def test_classes_are_counted_as_numbers() -> None:
    """In a config.json their numbers are texts; sorted as such, "10" would stand before "2"."""
    names = {str(number): f"class {number}" for number in reversed(range(12))}
    assert _labels({"id2label": names}) == [f"class {number}" for number in range(12)]
    assert _labels({"id2label": {"one": "a"}}) == _labels({}) == []


def test_classes_have_their_names(tmp_path: Path) -> None:
    names = {0: "sad", 1: "glad", 2: "neither"}
    config = HF.BertConfig(**BERT, id2label=names, label2id={name: index for index, name in names.items()})
    theirs = made(HF.BertForSequenceClassification(config), tmp_path / "bert")
    model = heed.load(tmp_path / "bert")
    (one, two) = model.classify(["the cat sat", ("the cat", "a dog")])
    ids = torch.tensor([[1, 5, 6, 2, 9, 11, 2]])
    with torch.no_grad():
        p = theirs(input_ids=ids, token_type_ids=torch.tensor([[0, 0, 0, 0, 1, 1, 1]])).logits[0].softmax(-1)
    assert {guess.label: guess.p for guess in two} == pytest.approx(
        {names[index]: float(chance) for index, chance in enumerate(p)}, rel=1e-4
    )
    assert sum(guess.p for guess in one) == pytest.approx(1)
    assert "glad" in run(str(tmp_path / "bert"), "the cat sat")
    told = json.loads(run(str(tmp_path / "bert"), "the cat sat", "--json"))
    assert {found["label"] for found in told["classes"]} == set(names.values())


# --- encoder-decoders ---


def test_an_encoder_decoder_answers_as_the_reference_does(tmp_path: Path) -> None:
    config = HF.T5Config(
        vocab_size=len(WORDS),
        d_model=24,
        d_kv=6,
        d_ff=30,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
        eos_token_id=2,
        pad_token_id=0,
    )
    theirs = made(HF.T5ForConditionalGeneration(config), tmp_path / "t5")
    model = heed.load(tmp_path / "t5")
    assert isinstance(model, Text2TextGeneration)
    sources = ["the cat sat on a mat", "dog"]
    answers = model.translate(sources, GenerationConfig(max_new_tokens=6))
    for source, answer in zip(sources, answers, strict=True):
        ids = torch.tensor([[1, *(WORDS.index(word) for word in source.split()), 2]])
        wanted = theirs.generate(ids, max_new_tokens=6, do_sample=False)[0, 1:].tolist()
        assert model.tokenizer.encode(answer) == [i for i in wanted if i > 4]


# --- what cannot be used ---


def test_a_folder_without_a_tokenizer_is_a_bare_model() -> None:
    model = heed.load(GOLDEN / "gpt2" / "lm")
    assert isinstance(model, Bare)
    with pytest.raises(InputError, match="cannot generate: it is a checkpoint without a tokenizer"):
        model.generate("x")
    assert isinstance(heed.load(GOLDEN / "transformer" / "postln_paper"), Bare)


def test_paths_that_are_no_checkpoints(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="give a run folder, a checkpoint folder or a .gguf file"):
        heed.load(tmp_path / "lost")
    with pytest.raises(RunError, match="holds no config.json, so it is not a run folder .* nor a checkpoint"):
        heed.load(tmp_path)
    (tmp_path / "a.bin").write_bytes(b"x")
    with pytest.raises(WeightsError, match="heed convert"):
        heed.load(tmp_path / "a.bin")
    found = RUNNER.invoke(app, ["convert", str(tmp_path / "lost"), str(tmp_path / "out")])
    assert "lost is not a folder or a file" in str(found.exception)
    (tmp_path / "b.gguf").write_bytes(b"GGUF")
    with pytest.raises(WeightsError, match="b.gguf"):
        heed.load(tmp_path / "b.gguf")


# --- convert ---


def test_pickles_become_safetensors(llama: Path, tmp_path: Path) -> None:
    before = heed.load(llama).generate("the cat", GenerationConfig(max_new_tokens=5))
    state = HF.LlamaForCausalLM.from_pretrained(llama).state_dict()
    torch.save(state, llama / "pytorch_model.bin")
    (llama / "model.safetensors").unlink()
    with pytest.raises(WeightsError, match="heed convert"):
        heed.load(llama)
    found = RUNNER.invoke(app, ["convert", str(llama), str(tmp_path / "out"), "--json"])
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["family"] == "llama"
    assert heed.load(tmp_path / "out").generate("the cat", GenerationConfig(max_new_tokens=5)) == before
    again = RUNNER.invoke(app, ["convert", str(llama), str(tmp_path / "out")])
    assert "already there" in str(again.exception)


def test_a_folder_is_written_again(llama: Path, tmp_path: Path) -> None:
    found = RUNNER.invoke(app, ["convert", str(llama), str(tmp_path / "out"), "--shard", "0.001"])
    assert found.exit_code == 0, found.output
    assert heed.load(tmp_path / "out").generate("the cat", GenerationConfig(max_new_tokens=5)) == heed.load(
        llama
    ).generate("the cat", GenerationConfig(max_new_tokens=5))
    shutil.rmtree(tmp_path / "out")


def test_a_folder_of_links_is_converted_whole(llama: Path, tmp_path: Path) -> None:
    """As download caches lay folders out: every file is a link to where it really is."""
    (tmp_path / "links").mkdir()
    for path in llama.iterdir():
        (tmp_path / "links" / path.name).symlink_to(path)
    (llama / "1_Pooling").mkdir()
    (llama / "1_Pooling" / "config.json").write_text("{}")
    (tmp_path / "links" / "1_Pooling").symlink_to(llama / "1_Pooling")
    found = RUNNER.invoke(app, ["convert", str(tmp_path / "links"), str(tmp_path / "out")])
    assert found.exit_code == 0, found.output
    assert (tmp_path / "out" / "1_Pooling" / "config.json").is_file()
    assert isinstance(heed.load(tmp_path / "out"), TextGeneration)
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "out").iterdir() if path.is_file()}
    assert len(modes) == 1  # weights are as readable as the rest


def test_a_model_that_scores_more_tokens_than_there_are_writes_only_those(tmp_path: Path) -> None:
    config = HF.LlamaConfig(**{**SMALL, "vocab_size": 64}, intermediate_size=40, bos_token_id=1, eos_token_id=2)
    made(HF.LlamaForCausalLM(config), tmp_path / "wide", framed=False)
    model = heed.load(tmp_path / "wide")
    for seed in range(3):
        ((best,),) = model.completions(
            ["the cat"],
            GenerationConfig.load(
                {"max_new_tokens": 30, "strategy": {"kind": "sample", "temperature": 2.0, "seed": seed}}
            ),
        )
        assert best.tokens > 0
        assert set(best.text.split()) <= {model.tokenizer.decode([index]) for index in range(model.tokenizer.size)}


def test_only_tokens_that_there_are_fill_a_mask(tmp_path: Path) -> None:
    made(HF.BertForMaskedLM(HF.BertConfig(**{**BERT, "vocab_size": 64})), tmp_path / "bert")
    (guesses,) = heed.load(tmp_path / "bert").fill("the [MASK] sat", top_k=60)
    assert len(guesses) == len(WORDS)
