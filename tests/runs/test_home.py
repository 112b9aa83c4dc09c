"""Runs that go home: trained from nothing or fine-tuned, converted by the command, loaded by transformers."""

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
from heed.core.contract import Where
from heed.core.errors import ConfigError, RunError, WeightsError
from heed.pipelines import GenerationConfig, Text2TextGeneration, TextGeneration
from heed.runs import Recipe, Run, find
from heed.runs.convert import convert
from heed.show.progress import Silent
from heed.text import Char, Chat, Declared, Tokenizer
from heed.train import train

transformers.utils.logging.disable_progress_bar()
HF: Any = transformers

RUNNER = CliRunner()
TRAINING = [f"training.{one}" for one in ("steps=4", "batch=200", "evaluate=2", "save=2", "schedule.warmup=1")]
SMALL = [*TRAINING, "model.width=24", "model.depth=2"]
LINES = "the cat sat on the mat, and 12 dogs don't care!\nÜnïcödé is fun\n" * 40
PROBES = ("the cat", "12 dogs don't", "Ünïcödé  fun\n\nand", "on the mat!")
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
SINGLE = 2e-5


def trained(out: Path, recipe: str, data: Path, *changes: str) -> Path:
    settings = ["data.kind=files", f'data.train="{data}"', *SMALL, *changes]
    train(Recipe.read(find(recipe), settings), out, Silent())
    return out


def command(*words: str | Path) -> str:
    found = RUNNER.invoke(app, list(map(str, words)))
    if found.exception is not None:
        raise found.exception
    return found.output


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "book.txt"
    path.write_text(LINES)
    return path


@torch.no_grad()
def same_logits(run: Path, folder: Path) -> None:
    """Ids and logits of a language model, here and there."""
    ours = heed.load(run)
    assert isinstance(ours, TextGeneration)
    tokenizer = HF.AutoTokenizer.from_pretrained(folder)
    model, told = HF.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not told["missing_keys"], told
    assert not told["unexpected_keys"], told
    for text in PROBES:
        tokens = tokenizer(text, return_tensors="pt").input_ids
        assert tokens[0].tolist() == ours.tokenizer.encode(text)
        assert tokenizer.decode(tokens[0]) == ours.tokenizer.decode(tokens[0].tolist())
        wanted = ours.model(tokens, Where.run(*tokens.shape))[0]
        assert (model(tokens).logits - wanted).abs().max().item() < SINGLE
    tokens = tokenizer(PROBES[-1], return_tensors="pt").input_ids
    written = model.generate(tokens, max_new_tokens=6, do_sample=False)[0, tokens.shape[1] :].tolist()
    theirs = tokenizer.decode(written, skip_special_tokens=True)
    assert theirs == ours.generate(PROBES[-1], GenerationConfig(max_new_tokens=6))


@pytest.mark.parametrize(
    ("recipe", "tokenizer", "family"),
    [
        ("characters", "char", "arcee"),
        ("characters", "byte", "arcee"),
        ("stdlib", "bpe", "llama"),
        ("stdlib", "word", "llama"),
    ],
)
def test_a_language_model_from_nothing(recipe: str, tokenizer: str, family: str, book: Path, tmp_path: Path) -> None:
    size = {"bpe": ["tokenizer.size=300"], "word": ["tokenizer.size=40"]}.get(tokenizer, [])
    run = trained(tmp_path / "run", recipe, book, f"tokenizer={{kind='{tokenizer}'}}", *size, "data.held_out=0.1")
    made = json.loads(command("convert", run, tmp_path / "out", "--json"))
    assert (made["family"], made["layout"]) == (family, "huggingface")
    same_logits(run, tmp_path / "out")
    told = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert told == {"bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 0, "do_sample": False}
    assert json.loads((tmp_path / "out" / "config.json").read_text())["max_position_embeddings"] == 128
    again = heed.load(tmp_path / "out")
    few = GenerationConfig(max_new_tokens=6)
    assert again.generate("the cat", few) == heed.load(run).generate("the cat", few)


def test_the_card_goes_along_without_paths(book: Path, tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "characters", book)
    command("convert", run, tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "AutoModelForCausalLM.from_pretrained" in card
    assert "book.txt" in card
    assert "## Contract" in card
    assert "| split | holds |" in card
    assert str(tmp_path) not in card
    assert str(book.parent) not in card


@pytest.mark.parametrize(("recipe", "family"), [("translation", "pegasus"), ("dates", "marian")])
def test_a_translator_from_nothing(recipe: str, family: str, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"word {n}\twort {n}\n" for n in range(40)))
    heads = ("model.heads=2", "model.hidden=24")
    run = trained(tmp_path / "run", recipe, tmp_path / "pairs.tsv", *heads, "tokenizer={kind='bpe', size=280}")
    assert json.loads(command("convert", run, tmp_path / "out", "--json"))["family"] == family
    ours = heed.load(run)
    assert isinstance(ours, Text2TextGeneration)
    tokenizer = HF.AutoTokenizer.from_pretrained(tmp_path / "out")
    model, told = HF.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not told["missing_keys"], told
    tokens = tokenizer("word 7", return_tensors="pt").input_ids
    assert tokens[0].tolist() == [*ours.tokenizer.encode("word 7"), 2]
    target = torch.tensor([[1, 5, 9, 11]])
    with torch.no_grad():
        where = Where.run(1, 4).give(encoder_output=ours.model.encode(tokens, Where.run(*tokens.shape)))  # type: ignore[operator]
        wanted = ours.model(target, where)[0]
        assert (model(input_ids=tokens, decoder_input_ids=target).logits - wanted).abs().max().item() < SINGLE
    generation = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert generation["decoder_start_token_id"] == 1
    assert generation.get("num_beams", 1) == (5 if recipe == "translation" else 1)
    few = GenerationConfig(max_new_tokens=5)
    assert heed.load(tmp_path / "out").translate(["word 7"], few) == ours.translate(["word 7"], few)


# --- fine-tuned ---


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Falcon, whose shape heed derives no config for: only its own can be used; with a chat template."""
    folder = tmp_path_factory.mktemp("base") / "falcon"
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = HF.FalconConfig(**sizes, bos_token_id=1, eos_token_id=2, alibi=False)
    HF.FalconForCausalLM(config).save_pretrained(folder)
    inner = Char().train([LINES]).__reduce__()[1][0]
    Tokenizer(inner, Declared(chat=Chat(TEMPLATE))).save_all(folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 2, "temperature": 0.7}))
    (folder / "README.md").write_text("the card of the base")
    return folder


LORA = ("edits.kind=lora", "edits.rank=2", "edits.on=*.query", "training.optimizer.lr=0.1")


@pytest.mark.parametrize("edits", [(), LORA], ids=["whole", "lora"])
def test_a_fine_tuned_model_goes_home(edits: tuple[str, ...], base: Path, book: Path, tmp_path: Path) -> None:
    shutil.copytree(base, tmp_path / "base")
    settings = ["data.kind=files", f'data.train="{book}"', *TRAINING, f"base={tmp_path / 'base'}", *edits]
    train(Recipe.read(find("characters"), settings), tmp_path / "run", Silent())
    shutil.rmtree(tmp_path / "base")  # it need not stay
    run = Run.open(tmp_path / "run")
    assert run.tokenizer.chat is not None
    assert run.tokenizer.chat.template == TEMPLATE
    made = convert(run.path, tmp_path / "out")
    assert made.family == "falcon"
    same_logits(run.path, tmp_path / "out")
    theirs, ours = (json.loads((one / "config.json").read_text()) for one in (base, tmp_path / "out"))
    assert {**theirs, "dtype": "float32"} == ours
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (base / name).read_bytes()
    assert HF.AutoTokenizer.from_pretrained(tmp_path / "out").chat_template == TEMPLATE
    assert "the card of the base" not in (tmp_path / "out" / "README.md").read_text()
    assert not any(".a" in name for name in heed.load(tmp_path / "out").model.state_dict())


def test_a_run_of_a_run_goes_home_too(base: Path, book: Path, tmp_path: Path) -> None:
    for name, start in (("one", base), ("two", tmp_path / "one")):
        settings = ["data.kind=files", f'data.train="{book}"', *TRAINING, f"base={start}", *LORA]
        train(Recipe.read(find("characters"), settings), tmp_path / name, Silent())
    assert convert(tmp_path / "two", tmp_path / "out").family == "falcon"
    same_logits(tmp_path / "two", tmp_path / "out")


def test_gguf_of_a_run(book: Path, tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "characters", book)
    told = json.loads(command("convert", run, tmp_path / "out.gguf", "--type", "f32", "--json"))
    assert (told["layout"], told["family"]) == ("gguf", "arcee")
    one, two = heed.load(run), heed.load(tmp_path / "out.gguf")
    few = GenerationConfig(max_new_tokens=8)
    assert one.generate("the cat", few) == two.generate("the cat", few)


# --- what stays a run ---


def test_layouts(base: Path, book: Path, tmp_path: Path) -> None:
    settings = ["data.kind=files", f'data.train="{book}"', *TRAINING, f"base={base}", *LORA]
    train(Recipe.read(find("characters"), settings), tmp_path / "run", Silent())
    made = json.loads(command("convert", tmp_path / "run", tmp_path / "kept", "--layout", "heed", "--json"))
    assert made["layout"] == "heed"
    assert Run.open(tmp_path / "kept").recipe.edits == ()
    with pytest.raises(ConfigError, match="'hugginface' is not a layout that heed writes; did you mean huggingface"):
        convert(tmp_path / "run", tmp_path / "no", layout="hugginface")
    with pytest.raises(WeightsError, match="is already there and not empty"):
        convert(tmp_path / "run", tmp_path / "kept")


def test_what_has_no_home_is_told(book: Path, tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "characters", book, "model.scaled=true")
    with pytest.raises(WeightsError, match="scaled: True, where arcee has False"):
        convert(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(WeightsError, match="scaled: True, where arcee has False"):
        heed.load(run).save(tmp_path / "out")


def test_a_base_of_the_hub_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match=r"base = './nope' cannot be begun from: ./nope is not a folder or a file"):
        train(Recipe.read(find("stdlib"), ["base=./nope"]), tmp_path / "run", Silent())
