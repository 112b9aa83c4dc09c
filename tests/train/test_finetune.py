"""Fine-tuning anybody's checkpoint: families of every kind, in full and by LoRA; rates of their own; and home again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import Tokenizer as Inner
from tokenizers import models, pre_tokenizers, processors

import heed
from heed.core.contract import Where
from heed.core.errors import ConfigError, InputError, RunError, WeightsError
from heed.pipelines.encoder import EncoderPipeline
from heed.pipelines.streams import stream_of
from heed.runs import Recipe, Run, find
from heed.runs.convert import convert
from heed.show.progress import Silent
from heed.train import train
from tests.train.support import language_model, resumed, same_run, trained

HF: Any = transformers
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # transformers' DeBERTa
WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "</s>",
    *["good", "bad", "fine", "poor", "film", "book", "very", "a", "the", "was"],
]
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
PARTS = {"layers": 2, "attention_heads": 2, "ffn_dim": 24}
WIDE = {**SIZES, "vocab_size": len(WORDS), "max_position_embeddings": 40, "pad_token_id": 0}
ONE = {"d_model": 16, "vocab_size": len(WORDS), "pad_token_id": 0, "eos_token_id": 5, "decoder_start_token_id": 0}

FAMILIES: dict[str, Callable[[], Any]] = {
    "bert": lambda: HF.BertModel(HF.BertConfig(**WIDE)),
    "bert masked": lambda: HF.BertForMaskedLM(HF.BertConfig(**WIDE)),
    "roberta": lambda: HF.RobertaForMaskedLM(HF.RobertaConfig(**WIDE)),
    "distilbert": lambda: HF.DistilBertModel(
        HF.DistilBertConfig(vocab_size=len(WORDS), dim=16, n_layers=2, n_heads=2, hidden_dim=24, pad_token_id=0)
    ),
    "albert": lambda: HF.AlbertModel(HF.AlbertConfig(**WIDE, embedding_size=8)),
    "electra": lambda: HF.ElectraModel(HF.ElectraConfig(**WIDE, embedding_size=8)),
    "deberta_v2": lambda: HF.DebertaV2Model(HF.DebertaV2Config(**WIDE, pooler_hidden_size=16)),
    "mpnet": lambda: HF.MPNetModel(HF.MPNetConfig(**WIDE)),
    "funnel": lambda: HF.FunnelModel(
        HF.FunnelConfig(
            vocab_size=len(WORDS), block_sizes=[1, 1], d_model=16, n_head=2, d_head=8, d_inner=24, num_decoder_layers=1
        )
    ),
    "gpt2": lambda: HF.GPT2LMHeadModel(
        HF.GPT2Config(vocab_size=len(WORDS), n_embd=16, n_layer=2, n_head=2, n_positions=40)
    ),
    "llama": lambda: HF.LlamaForCausalLM(HF.LlamaConfig(**WIDE)),
    "qwen2": lambda: HF.Qwen2ForCausalLM(HF.Qwen2Config(**WIDE, num_key_value_heads=2)),
    "t5": lambda: HF.T5ForConditionalGeneration(HF.T5Config(**ONE, d_kv=8, d_ff=24, num_layers=2, num_heads=2)),
    "bart": lambda: HF.BartForConditionalGeneration(
        HF.BartConfig(
            **ONE,
            **{f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in PARTS.items()},
            max_position_embeddings=40,
        )
    ),
}
TRAINING = [
    "task.longest=30",
    *(f"training.{one}" for one in ("steps=3", "batch=200", "evaluate=3", "save=3", "schedule.warmup=1")),
]
LORA = ("edits.kind=lora", "edits.rank=2", "training.optimizer.lr=0.05")


def base_of(name: str, folder: Path) -> Path:
    """A tiny random checkpoint with a tokenizer of words."""
    torch.manual_seed(0)
    FAMILIES[name]().save_pretrained(folder)
    inner = Inner(models.WordLevel({word: number for number, word in enumerate(WORDS)}, "[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    told = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    HF.PreTrainedTokenizerFast(tokenizer_object=inner, mask_token="[MASK]", **told).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "rows.tsv"
    path.write_text(
        "text\tlabel\n" + "a very good film\tpraise\nthe book was poor\tblame\nthe film was a film\tnone\n" * 12
    )
    return path


def tuned(recipe: str, base: Path, data: Path, out: Path, *changes: str) -> Path:
    settings = ["data.kind=files", f'data.train="{data}"', *TRAINING, f"base={base}", *changes]
    train(Recipe.read(find(recipe), settings), out, Silent())
    return out


def asked(run: Path) -> EncoderPipeline:
    pipeline = heed.load(run)
    assert isinstance(pipeline, EncoderPipeline)
    return pipeline


@pytest.mark.parametrize("edits", [(), LORA], ids=["whole", "lora"])
@pytest.mark.parametrize("name", FAMILIES)
def test_every_kind_of_family_learns_classes(name: str, edits: tuple[str, ...], rows: Path, tmp_path: Path) -> None:
    base = base_of(name, tmp_path / "base")
    run = tuned("classify", base, rows, tmp_path / "run", *edits)
    found = asked(run).classify("a very good film")
    assert {one.label for one in found} == {"praise", "blame", "none"}
    if name in ("t5", "bart", "funnel"):
        with pytest.raises(WeightsError, match="has no such model: it differs from its base in"):
            convert(run, tmp_path / "home")
        return
    convert(run, tmp_path / "home")
    model, told = HF.AutoModelForSequenceClassification.from_pretrained(tmp_path / "home", output_loading_info=True)
    assert type(model).__name__.endswith("ForSequenceClassification")
    assert not told["missing_keys"], told
    assert not told["unexpected_keys"], told
    assert model.config.id2label == {0: "blame", 1: "none", 2: "praise"}
    tokenizer = HF.PreTrainedTokenizerFast.from_pretrained(tmp_path / "home")
    texts = ["a very good film", "the book"]
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        wanted = model.eval()(**batch).logits.softmax(-1)
    for pipeline in (asked(run), asked(tmp_path / "home")):
        for row, predictions in zip(wanted, pipeline.classify(texts), strict=True):
            ours = {one.label: one.probability for one in predictions}
            theirs = {model.config.id2label[number]: float(value) for number, value in enumerate(row)}
            assert ours == pytest.approx(theirs, abs=2e-5)


TAGS = "the\tO\nfilm\tB-X\nwas\tO\ngood\tB-Y\n\na\tO\nbook\tB-X\n\n" * 12


@pytest.mark.parametrize(
    "name", ["bert", "roberta", "distilbert", "albert", "electra", "deberta_v2", "mpnet", "funnel"]
)
def test_tags_go_home(name: str, tmp_path: Path) -> None:
    (tmp_path / "tags.conll").write_text(TAGS)
    run = tuned("tag", base_of(name, tmp_path / "base"), tmp_path / "tags.conll", tmp_path / "run")
    convert(run, tmp_path / "home")
    model, told = HF.AutoModelForTokenClassification.from_pretrained(tmp_path / "home", output_loading_info=True)
    assert not told["missing_keys"], told
    same_stream(run, model, tmp_path / "home", "tagged", "logits")


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "albert", "electra", "deberta_v2"])
def test_spans_go_home(name: str, tmp_path: Path) -> None:
    lines = [{"question": "was the film good", "context": "the film was very good", "answers": ["very good"]}] * 20
    (tmp_path / "spans.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = tuned(
        "span",
        base_of(name, tmp_path / "base"),
        tmp_path / "spans.jsonl",
        tmp_path / "run",
        "task.stride=4",
    )
    convert(run, tmp_path / "home")
    model, told = HF.AutoModelForQuestionAnswering.from_pretrained(tmp_path / "home", output_loading_info=True)
    assert not told["missing_keys"], told
    same_stream(run, model, tmp_path / "home", "spans", "start_logits")


@torch.no_grad()
def same_stream(run: Path, model: Any, folder: Path, head: str, wanted: str) -> None:
    """Logits of every token of a text, here and there."""
    batch = HF.PreTrainedTokenizerFast.from_pretrained(folder)("the film was very good", return_tensors="pt")
    theirs = model.eval()(**batch)[wanted]
    ours: Any = heed.load(run).model
    fields = torch.stack([batch["input_ids"], torch.zeros_like(batch["input_ids"])], -1)
    seen = stream_of(ours, fields, Where.run(*fields.shape[:2]))
    made = ours.heads[head](seen.parts[0], seen)
    made = made[..., 0] if head == "spans" else made
    assert (made - theirs).abs().max().item() < 2e-5


# --- adapters of runs ---


@pytest.mark.parametrize("name", ["bert", "bert masked", "roberta", "distilbert", "gpt2", "llama"])
def test_a_run_by_lora_becomes_an_adapter_of_peft(name: str, rows: Path, tmp_path: Path) -> None:
    base = base_of(name, tmp_path / "base")
    run = tuned("classify", base, rows, tmp_path / "run", *LORA)
    made = convert(run, tmp_path / "adapter", layout="peft")
    assert made.layout == "peft"
    bare = HF.AutoModelForSequenceClassification.from_pretrained(base, num_labels=3)
    bare.config.pad_token_id = 0
    model = peft.PeftModel.from_pretrained(bare, tmp_path / "adapter").eval()
    batch = HF.PreTrainedTokenizerFast.from_pretrained(tmp_path / "adapter")(["a very good film"], return_tensors="pt")
    with torch.no_grad():
        wanted = model(**batch).logits.softmax(-1)[0].tolist()
    names = ("blame", "none", "praise")
    for pipeline in (asked(run), asked(tmp_path / "adapter")):
        found = {one.label: one.probability for one in pipeline.classify("a very good film")}
        assert [found[label] for label in names] == pytest.approx(wanted, abs=2e-5)
    convert(tmp_path / "adapter", tmp_path / "merged")
    found = {one.label: one.probability for one in asked(tmp_path / "merged").classify("a very good film")}
    assert [found[label] for label in names] == pytest.approx(wanted, abs=2e-5)
    again = tuned("classify", tmp_path / "adapter", rows, tmp_path / "again", "training.optimizer.lr=1e-9")
    found = {one.label: one.probability for one in asked(again).classify("a very good film")}
    assert [found[label] for label in names] == pytest.approx(wanted, abs=2e-5)


def test_an_adapter_needs_its_base(rows: Path, tmp_path: Path) -> None:
    base = base_of("bert", tmp_path / "base")
    run = tuned("classify", base, rows, tmp_path / "run", *LORA)
    convert(run, tmp_path / "adapter", layout="peft")
    base.rename(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="the checkpoint below .* is needed"):
        convert(run, tmp_path / "no", layout="peft")
    convert(run, tmp_path / "two", layout="peft", settings=[f"base={tmp_path / 'elsewhere'}"])
    with pytest.raises(RunError, match="is not a folder or a file"):
        heed.load(tmp_path / "adapter")
    found = heed.load(tmp_path / "elsewhere", adapter=tmp_path / "adapter")
    assert found.classify("a film") == asked(tmp_path / "two").classify("a film")
    whole = tuned("classify", tmp_path / "elsewhere", rows, tmp_path / "whole")
    with pytest.raises(InputError, match="has no adapters to write"):
        convert(whole, tmp_path / "no", layout="peft")
    chained = tuned("classify", run, rows, tmp_path / "chained", *LORA)
    with pytest.raises(WeightsError, match="is not as the base"):
        convert(chained, tmp_path / "no", layout="peft", settings=[f"base={tmp_path / 'elsewhere'}"])


def test_the_fresh_head_learns_beside_adapters_and_nothing_else(rows: Path, tmp_path: Path) -> None:
    base = base_of("bert", tmp_path / "base")
    begun, run = (
        load_file(tuned("classify", base, rows, tmp_path / name, *LORA, *more) / "model.safetensors")
        for name, more in (("still", ("training.optimizer.lr=1e-30",)), ("run", ()))
    )
    moved = {name for name in run if not torch.equal(run[name], begun[name])}
    assert {"heads.pooled.scores.weight", "heads.pooled.scores.bias"} < moved
    assert all(
        name.endswith((".a", ".b")) for name in moved - {"heads.pooled.scores.weight", "heads.pooled.scores.bias"}
    )
    (edit,) = Run.open(tmp_path / "run").recipe.edits
    assert edit.dump()["full"] == ["heads.pooled.scores.bias", "heads.pooled.scores.weight"]


# --- rates, and what stays ---

GROUPS = (
    "training.freeze=*.embeddings.*",
    "training.groups={on='*.mixer.*', rate=0.5, decay=0.0}",
    "training.layer_decay=0.8",
    "training.average.kind=ema",
)


def test_frozen_weights_do_not_move_a_bit_and_resuming_is_exact(tmp_path: Path) -> None:
    trained(tmp_path / "whole", *GROUPS)
    trained(tmp_path / "cut", *GROUPS, "training.steps=3")
    resumed(tmp_path / "cut", "training.steps=6")
    trained(tmp_path / "still", *GROUPS, "training.optimizer.lr=1e-30", "training.optimizer.decay=0.0")
    begun, run = (load_file(tmp_path / name / "model.safetensors") for name in ("still", "whole"))
    frozen = {name for name in run if ".embeddings." in name}
    assert frozen
    assert {name for name in run if torch.equal(run[name], begun[name])} == frozen
    trained(tmp_path / "straight", *GROUPS, "training.schedule.kind=constant")
    trained(tmp_path / "halved", *GROUPS, "training.schedule.kind=constant", "training.steps=3")
    resumed(tmp_path / "halved", "training.steps=6")
    assert same_run(tmp_path / "straight", tmp_path / "halved")


def test_groups_are_those_of_the_optimizer(tmp_path: Path) -> None:
    from heed.runs.training import Training, Weights
    from heed.train.optim import adamw, set_rate

    settings = Training(layer_decay=0.5, groups=(Weights(on="*.feedforward.*", rate=3.0, decay=0.0),))
    model = language_model("model.depth=3").build(50)
    optimizer = adamw(model, settings)
    set_rate(optimizer, 0.1)
    rates = {id(w): (group["lr"], group["weight_decay"]) for group in optimizer.param_groups for w in group["params"]}
    found = {name: rates[id(weight)] for name, weight in model.named_parameters()}
    assert len(rates) == len(found)
    assert found["stack.blocks.2.mixer.query.weight"] == pytest.approx((0.1 * 0.5, 0.01))
    assert found["stack.blocks.0.mixer.query.weight"] == pytest.approx((0.1 * 0.5**3, 0.01))
    assert found["stack.blocks.1.feedforward.up.weight"] == pytest.approx((0.1 * 0.5**2 * 3, 0.0))
    assert found["embeddings.table.weight"] == pytest.approx((0.1 * 0.5**4, 0.01))
    assert found["stack.ends.final.weight"] == pytest.approx((0.1, 0.0))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("training.freeze=*.nothing", r"training.freeze = '\*.nothing' names no weight"),
        ("training.freeze=*", "leaves nothing to learn"),
        ("training.groups={on='*.querry.*'}", r"training.groups.0.on = '\*.querry.\*' names no weight"),
        ("training.layer_decay=0.0", "training.layer_decay"),
    ],
)
def test_what_names_nothing_is_an_error(change: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        trained(tmp_path / "run", change)
