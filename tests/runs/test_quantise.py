"""heed convert --quantise, from the command to the model in use; and what it tells of what was lost."""

from __future__ import annotations

import json
from math import log
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from typer.testing import CliRunner

import heed
from heed.cli import app
from heed.core.contract import Where
from heed.core.errors import ConfigError, InputError, WeightsError
from heed.pipelines import GenerationConfig, TextGeneration
from heed.runs import Recipe, Run
from heed.runs.quantisation import MOST, Cost, cost, size_of
from heed.text import Char
from heed.weights.edits.quantised import BITS, Bits
from tests.pipelines.small import WORDS
from tests.pipelines.test_checkpoint import BERT, made
from tests.weights.support import GOLDEN

HF: Any = transformers
RUNNER = CliRunner()
TEXT = "the cat sat on a mat and then it slept . the dog ran home and the cat sat on it " * 3


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    sizes = {"vocab_size": len(WORDS), "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = HF.LlamaConfig(**sizes, intermediate_size=96, num_key_value_heads=2, bos_token_id=1, eos_token_id=2)
    made(HF.LlamaForCausalLM(config), tmp_path / "llama", framed=False, chat=True)
    return tmp_path / "llama"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text(TEXT)
    return tmp_path / "text.txt"


def run(*words: object, code: int = 0) -> str:
    found = RUNNER.invoke(app, ["convert", *map(str, words)])
    if code and found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    assert found.exit_code == code, found.output
    return found.output


@pytest.mark.parametrize("bits", BITS)
def test_what_is_written_is_what_is_rounded_as_it_is_read(llama: Path, tmp_path: Path, bits: Bits) -> None:
    told = run(llama, tmp_path / "out", "--quantise", bits)
    assert "--text FILE" in told
    assert "Only heed reads this folder" in told
    one, two = heed.load(llama, quantise=bits), heed.load(tmp_path / "out")
    assert isinstance(one, TextGeneration)
    assert isinstance(two, TextGeneration)
    assert type(one) is type(two)
    ids, where = torch.arange(18)[None], Where.run(1, 18)
    with torch.no_grad():
        assert torch.equal(one.model(ids, where)[0], two.model(ids, where)[0])
    assert one.generate("the cat", GenerationConfig(max_new_tokens=8)) == two.generate(
        "the cat", GenerationConfig(max_new_tokens=8)
    )
    assert (
        two.chat([{"role": "user", "content": "the cat"}], GenerationConfig(max_new_tokens=3)) is not None
    )  # its template came along
    before, after = ((place / "model.safetensors").stat().st_size for place in (llama, tmp_path / "out"))
    assert after < before * (0.3 if bits == "int4" else 0.4)  # of so small a file, names and steps are a good part


def test_the_cost_is_told(llama: Path, tmp_path: Path, text: Path) -> None:
    told = json.loads(run(llama, tmp_path / "out", "--quantise", "int4", "--text", text, "--json"))
    found = Cost(**told["cost"])
    exact, rounded = heed.load(llama), heed.load(llama, quantise="int4")
    assert isinstance(exact, TextGeneration)
    assert isinstance(rounded, TextGeneration)
    ids = exact.tokenizer.encode(TEXT)
    given = torch.tensor([[1, *ids]])
    with torch.no_grad():
        one, two = (m.model(given[:, :-1], Where.run(1, len(ids)))[0][0] for m in (exact, rounded))
    nats = [torch.nn.functional.cross_entropy(scores, given[0, 1:]).item() for scores in (one, two)]
    assert found.tokens == len(ids)
    assert [log(found.exact_perplexity), log(found.perplexity)] == pytest.approx(nats, rel=1e-5)
    assert found.largest == pytest.approx((one - two).abs().max().item(), rel=1e-3)
    assert found.mean == pytest.approx((one - two).abs().mean().item(), rel=1e-3)
    assert found.spread == pytest.approx(one.std(correction=0).item(), rel=1e-4)
    assert found.equal == pytest.approx((one.argmax(-1) == two.argmax(-1)).float().mean().item())
    assert found.bytes == told["bytes"]
    assert found.exact_bytes == sum(weight.nbytes for weight in exact.model.parameters())
    shown = run(llama, tmp_path / "again", "--quantise", "int4", "--text", text)
    assert f"on {len(ids)} tokens" in shown
    assert f"{found.exact_perplexity:.4f} -> {found.perplexity:.4f}" in shown


def test_nothing_is_lost_between_a_model_and_itself(llama: Path) -> None:
    """Over several windows, and no more of a text than is needed."""
    model = heed.load(llama)
    found = cost(model, model, TEXT * 100)
    assert found.tokens == min(MOST, len(TEXT.split()) * 100)
    assert (found.largest, found.mean, found.equal) == (0.0, 0.0, 1.0)
    assert found.perplexity == found.exact_perplexity
    assert found.bytes == found.exact_bytes == size_of(model.model)


def test_finer_bits_lose_less(llama: Path) -> None:
    lost = {bits: cost(heed.load(llama), heed.load(llama, quantise=bits), TEXT).mean for bits in BITS}
    assert lost["int8"] < lost["w8a8"] < lost["int4"]
    assert lost["q8_0"] < lost["int4"]


def test_a_run_is_quantised(tmp_path: Path, text: Path) -> None:
    folder = trained(tmp_path, text)
    told = json.loads(run(folder, tmp_path / "few", "--quantise", "int4", "--text", text, "--json"))
    assert told["family"] == "heed"
    assert told["bytes"] < told["cost"]["exact_bytes"] * 0.3
    one, two = heed.load(folder, quantise="int4").model.state_dict(), heed.load(tmp_path / "few").model.state_dict()
    assert all(torch.equal(one[name], two[name]) and one[name].dtype == two[name].dtype for name in one)
    with pytest.raises(WeightsError, match="is quantised already; quantise the run that it was made of"):
        run(tmp_path / "few", tmp_path / "fewer", "--quantise", "int8", code=2)
    with pytest.raises(WeightsError, match="is quantised already; load it without quantise"):
        heed.load(tmp_path / "few", quantise="int8")


def trained(folder: Path, text: Path) -> Path:
    """A run with fresh weights."""
    model = {"kind": "decoder", "width": 64, "depth": 1, "mixer": [{"kind": "attention", "heads": 2}]}
    data = {"kind": "files", "train": str(text)}
    recipe = Recipe.load({"data": data, "tokenizer": {"kind": "char"}, "task": {"kind": "causal"}, "model": model})
    made = Run.create(folder / "run", recipe, Char().train([TEXT]))
    made.keep(made.build())
    return made.path


def test_tied_weights_have_their_size_once() -> None:
    model = torch.nn.ModuleDict({name: torch.nn.Linear(5, 3, bias=False) for name in ("one", "other")})
    assert size_of(model) == 2 * 15 * 4
    model["other"].weight = model["one"].weight
    assert size_of(model) == 15 * 4


def test_what_cannot_be_is_told_before_anything_is_written(llama: Path, tmp_path: Path, text: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(ConfigError, match=r"'int9' is not a precision to quantise to; did you mean int8\?"):
        run(llama, out, "--quantise", "int9", code=2)
    with pytest.raises(ConfigError, match=r"did you mean keep\?"):
        run(llama, out, "--quantise", "kept", code=2)
    with pytest.raises(ConfigError, match=r"did you mean w8a8\?"):
        heed.load(llama, quantise="w8a9")  # type: ignore[arg-type]
    assert "name a precision, too" in " ".join(run(llama, out, "--text", text, code=2).replace("│", " ").split())
    with pytest.raises(WeightsError, match="is not a run of heed's; only those are edited"):
        run(llama, out, "--quantise", "int8", "--set", "edits.kind=packed", code=2)
    with pytest.raises(InputError, match="cannot be read as UTF-8 text"):
        run(llama, out, "--quantise", "int8", "--text", tmp_path / "lost.txt", code=2)
    text.write_text(" \n")
    with pytest.raises(InputError, match="holds no text"):
        run(llama, out, "--quantise", "int8", "--text", text, code=2)
    with pytest.raises(WeightsError, match="is in its authors' own layout; load it with quantise='int8'"):
        run(GOLDEN / "retnet" / "lm_three_forms", out, "--quantise", "int8", code=2)
    assert not out.exists()


def test_a_checkpoint_is_rounded_once(llama: Path, tmp_path: Path) -> None:
    run(llama, tmp_path / "few", "--quantise", "int8")
    for words in ((), ("--quantise", "int4")):
        with pytest.raises(WeightsError, match="is quantised already, and only heed reads it"):
            run(tmp_path / "few", tmp_path / "out", *words, code=2)
    with pytest.raises(WeightsError, match="already there"):
        run(llama, tmp_path / "few", "--quantise", "int8", code=2)
    with pytest.raises(WeightsError, match="load it without quantise"):
        heed.load(tmp_path / "few", quantise="int4")


def test_what_writes_no_text_has_no_perplexity(tmp_path: Path, text: Path) -> None:
    made(HF.BertForMaskedLM(HF.BertConfig(**BERT)), tmp_path / "bert")
    with pytest.raises(InputError, match="measured by perplexity, which .* has not; leave --text out"):
        run(tmp_path / "bert", tmp_path / "out", "--quantise", "int8", "--text", text, code=2)
    assert not (tmp_path / "out").exists()
    run(tmp_path / "bert", tmp_path / "out", "--quantise", "int8")
    one, two = heed.load(tmp_path / "bert", quantise="int8"), heed.load(tmp_path / "out")
    assert one.fill("the [MASK] sat") == two.fill("the [MASK] sat")


def test_the_family_of_a_tokenizer_is_remembered(tmp_path: Path) -> None:
    """What only config.json tells of it: files of pairs mean another thing in every family."""
    config = HF.RobertaConfig(**{**BERT, "vocab_size": 12}, bos_token_id=0, eos_token_id=2, pad_token_id=1)
    HF.RobertaForMaskedLM(config).save_pretrained(tmp_path / "roberta")
    words = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "a", "b", "c", "ab", "Ġ", "Ġa", "Ġb"]
    (tmp_path / "roberta" / "vocab.json").write_text(json.dumps({word: n for n, word in enumerate(words)}))
    (tmp_path / "roberta" / "merges.txt").write_text("a b\nĠ a\nĠ b\n")
    run(tmp_path / "roberta", tmp_path / "out", "--quantise", "int8")
    one, two = (heed.load(place) for place in (tmp_path / "roberta", tmp_path / "out"))
    assert one.tokenizer.framed("ab b").ids == two.tokenizer.framed("ab b").ids
    assert len(two.tokenizer.framed("ab b").ids) > 2
