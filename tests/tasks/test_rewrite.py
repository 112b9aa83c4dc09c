"""Rewriting: prompts, cut sources, several references, and metrics beside the libraries' and by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

import heed
from heed.data.base import SEVERAL
from heed.models import Transformer
from heed.tasks import Rewrite, Translate
from heed.tasks.texts import bleu, changes, edits, rouge
from heed.text import Char
from tests.tasks.test_tasks import Some

PAIRS = Some(("the cat sat", f"cat{SEVERAL}a cat sat"), ("dogs run far away", "dogs run"), ("hi", "x" * 40))


def test_sources_are_cut_and_targets_left_out() -> None:
    task = Rewrite(longest=12, longest_target=20, prompt="say: ")
    tokenizer = Char().train(text for example in PAIRS for text in task.texts(example))
    corpus = task.corpus(PAIRS, tokenizer)
    sources = [tokenizer.decode(source[:-1].tolist()) for source, _ in corpus.once()]
    targets = [tokenizer.decode(target.tolist()) for _, target in corpus.once()]
    assert sources == ["say: the ca", "say: dogs r"]  # eleven characters and the end token
    assert targets == ["cat", "dogs run"]  # the first reference
    assert {int(source[-1]) for source, _ in corpus.once()} == {tokenizer.end}
    report = "2 pairs, 2 sources cut to 12 tokens (task.longest), 1 left out: targets longer than 20"
    assert report in corpus.report()
    assert corpus.left_out == 1


def test_it_is_translation_with_a_prompt() -> None:
    """The loss of the same tokens is the same."""
    rewrite, translate = Rewrite(longest=64, smoothing=0.0), Translate(smoothing=0.0)
    rows = Some(("the cat sat", "cat"), ("dogs run", "run"))
    tokenizer = Char().train(text for row in rows for text in row)
    model = Transformer(width=16, heads=2).sized(tokenizer.size).build().double().eval()
    one, other = (task.batch(task.corpus(rows, tokenizer).once()) for task in (rewrite, translate))
    assert float(rewrite.loss(model, one).nats) == float(translate.loss(model, other).nats)
    assert one.tokens == other.tokens


def test_rouge_takes_the_best_reference() -> None:
    found = rouge(["the cat sat"], [["a dog", "the cat"]])
    assert found["rouge_1"] == pytest.approx(100 * 2 * (2 / 3) * 1 / (2 / 3 + 1))
    assert found["rouge_2"] == pytest.approx(100 * 2 * (1 / 2) * 1 / (1 / 2 + 1))
    assert "maximum over references" in str(found["rouge_signature"])
    assert rouge(["猫坐着"], [["猫坐下"]])["rouge_1"] == pytest.approx(100 * 2 / 3)  # by characters
    assert rouge(["x"], [["x"]])["rouge_l"] == 100


def test_bleu_and_exact_matches_know_all_references() -> None:
    found = bleu(["a b c d e", "f"], [["x", "a b c d e"], ["g"]], lowercase=False)
    assert found["exact"] == 50
    assert float(found["bleu"]) > 80
    assert "nrefs:2" in str(found["signature"])


def test_edits_are_what_changes_words() -> None:
    assert changes("a b c", "a x c") == {(1, 2, ("x",))}
    assert changes("a b", "a b c") == {(2, 2, ("c",))}
    assert changes("a", "a") == set()
    # Two edits wanted; one of them made, and a wrong one: precision 1/2, recall 1/2.
    found = edits(["a b c d"], ["a x c e"], [["a x c f"]])
    assert found["edit_f05"] == pytest.approx(50)
    assert edits(["a b"], ["a b"], [["a c"]])["edit_f05"] == 0
    assert edits(["a b"], ["a c"], [["a x", "a c"]])["edit_f05"] == 100  # of the nearest reference


def test_a_run_is_trained_evaluated_and_used(tmp_path: Path) -> None:
    data = tmp_path / "pairs.jsonl"
    rows = ['{"source": "one. two three", "target": ["one.", "two"]}', '{"source": "four five", "target": "four"}'] * 4
    data.write_text("\n".join(rows), encoding="utf-8")
    small = {"model.width": 16, "model.depth": 1, "model.heads": 2, "model.hidden": 32, "tokenizer.size": 300}
    settings = {
        **small,
        "training.evaluate": 2,
        "training.threads": 1,
        "task.longest": 8,
        "task.decode": {"kind": "greedy"},
    }
    heed.train("rewrite", data=str(data), out=tmp_path / "run", steps=2, batch=512, settings=settings, quiet=True)
    found = heed.eval(tmp_path / "run", data=str(data), quiet=True)
    assert {"rouge_1", "rouge_2", "rouge_l", "bleu", "edit_f05", "loss"} <= found["test"].keys()
    assert found.floors["test"]["lead"]["rouge_1"] == pytest.approx((100 + 200 / 3) / 2)
    assert isinstance(heed.load(tmp_path / "run").generate("one. two three four five six seven eight"), str)
