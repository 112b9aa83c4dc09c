"""Tasks of sounds: what is learnt, what is left out and told, and that nothing else changes a loss."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile  # type: ignore[import-untyped]
import torch
from safetensors.torch import load_file
from torch import Tensor

import heed
from heed.core.errors import ConfigError, InputError
from heed.data.base import Examples
from heed.runs import Recipe, Run
from heed.runs.training import Constant
from heed.show.progress import Silent
from heed.tasks import CTC, Batch, Feed, Sounds, Task, Transcribe
from heed.tasks.loader import Loader
from heed.tasks.media.base import Sample
from heed.text import Tokenizer
from heed.train import resume, train
from tests.children import environment
from tests.tasks.sounds.beeps import beeps, classes, recipe, spoken, transcripts, whisper, words
from tests.train.support import metrics


class Notes(Silent):
    """What was said."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def made(given: Recipe) -> tuple[Any, Examples, Tokenizer, Any]:
    """The task as a training has it, its examples, its tokenizer and a model."""
    examples = given.data.split("train", given.task.columns)
    task: Task = given.task.informed(examples)
    texts = [text for example in examples for text in task.texts(example)]
    tokenizer = task.equip(given.tokenizer.train(texts or ["a"]))
    model = given.model_copy(update={"task": task}).build(tokenizer.size)
    task = task.fitted(model, None)
    task.must_fit(model)
    return task, examples, tokenizer, model.eval()


# --- what the data decides ---


def test_names_that_come_again_are_classes_and_other_texts_are_what_is_said(tmp_path: Path) -> None:
    task, _, _, _ = made(recipe(classes(tmp_path / "a")))
    assert isinstance(task, Sounds)
    assert task.classes == ("a", "b")
    task, examples, _, _ = made(recipe(transcripts(tmp_path / "b")))
    assert isinstance(task, CTC)
    assert examples[1][1] == "ba cab"
    table = tmp_path / "a" / "table.csv"
    table.write_text("file,class\n" + "".join(f"{name}/{i}.wav,{name}\n" for name in "ab" for i in range(6)))
    task, _, _, _ = made(recipe(table))
    assert isinstance(task, Sounds)
    lines = [f'{{"audio": "{n}.wav", "transcript": "{text}"}}' for n, text in enumerate(("ab", "ba", "c", "cab"))]
    (tmp_path / "b" / "clips.jsonl").write_text("\n".join(lines))
    task, _, _, _ = made(recipe(tmp_path / "b" / "clips.jsonl"))
    assert isinstance(task, CTC)


def test_one_class_teaches_nothing(tmp_path: Path) -> None:
    folder = classes(tmp_path / "a")
    for path in (folder / "b").iterdir():
        path.rename(folder / "a" / f"b{path.name}")
    (folder / "b").rmdir()
    with pytest.raises(InputError, match="all sounds have the class 'a'; needed are two classes at least"):
        train(recipe(folder), tmp_path / "run", Silent())


# --- files ---


def test_rates_and_channels_may_differ(tmp_path: Path) -> None:
    folder = classes(tmp_path / "a", rates=(8000, 16_000, 44_100), channels=(1, 2, 5))
    task, examples, tokenizer, _ = made(recipe(folder))
    loaded = [task.fetch(item) for item in task.corpus(examples, tokenizer).once()]
    lengths = {len(one.numbers) for one in loaded}
    assert max(lengths) - min(lengths) <= 1
    means = np.array([one.numbers.mean(0) for one in loaded])
    labels = np.array([int(one.label[0]) for one in loaded])
    within = np.abs(means[labels == 0] - means[labels == 0].mean(0)).max(1).mean()
    across = np.abs(means[labels == 0].mean(0) - means[labels == 1].mean(0)).max()
    assert within < 0.5 * across  # one letter at several rates is nearer to itself than to the other letter


def test_bad_sounds_are_left_out_counted_and_named(tmp_path: Path) -> None:
    folder = classes(tmp_path / "a")
    (folder / "a" / "broken.wav").write_bytes(b"RIFF" + bytes(50))
    whole = (folder / "a" / "0.wav").read_bytes()
    (folder / "b" / "cut.flac").write_bytes(b"fLaC" + whole[4:100])
    (folder / "b" / "empty.wav").write_bytes(b"")
    soundfile.write(folder / "a" / "silent.wav", np.zeros(0, np.float32), 8000)
    soundfile.write(folder / "a" / "short.wav", np.zeros(9, np.float32), 8000)
    soundfile.write(folder / "b" / "long.wav", np.zeros(8000 * 31, np.float32), 8000)
    notes = Notes()
    train(words(folder, "data.held_out=0.0", "task.longest=30.0"), tmp_path / "run", notes)
    (told,) = [line for line in notes.lines if line.startswith("train:")]
    assert "12 sounds; 6 files left out, which cannot be read" in told
    found = heed.eval(tmp_path / "run", data=folder, quiet=True)["test"]
    assert (found["examples"], found["unreadable"]) == (12, 6)
    for path in folder.rglob("[0-9].wav"):
        path.write_bytes(b"")
    with pytest.raises(InputError, match="of 16 files, 16 files left out, which cannot be read"):
        train(recipe(folder), tmp_path / "other", Silent())


# --- transcripts ---


def test_texts_that_cannot_be_learnt_are_left_out_and_told(tmp_path: Path) -> None:
    texts = ["ab", "", "ba", "cab", "  ", "abc" * 20]
    table = transcripts(tmp_path / "a", texts[:-1])
    soundfile.write(tmp_path / "a" / "5.wav", beeps("a"), 8000)  # 8 frames of the stream
    table.write_text(table.read_text() + f"5.wav\t{texts[-1]}\n")
    task, examples, tokenizer, _ = made(spoken(table, "data.held_out=0.0"))
    corpus = task.corpus(examples, tokenizer)
    assert corpus.wanted == ["ab", "ba", "cab"]
    assert corpus.left_out == 3
    assert "2 empty transcripts left out" in corpus.report()
    assert "1 sound left out: their texts need more frames than they have" in corpus.report()


def test_as_many_frames_as_a_text_needs_are_enough(tmp_path: Path) -> None:
    """The count of frames is the model's, to one."""
    table = transcripts(tmp_path / "a")
    task, examples, tokenizer, model = made(spoken(table, "data.held_out=0.0"))
    corpus = task.corpus(examples, tokenizer)
    for item in corpus.samples:
        batch = task.batch([task.fetch(item)])
        assert model.encode(batch.inputs.tokens, batch.inputs.where).shape[1] == item.length
    item = corpus.samples[0]
    exact = np.arange(item.length, dtype=np.int32) % 2 + 4  # no two neighbours are equal
    assert task._fits(exact, item.length)
    assert bool(task.loss(model, task.batch([task.fetch(item._replace(label=tuple(exact.tolist())))])).total.isfinite())
    assert not task._fits(np.append(exact, exact[-2]), item.length)
    assert not task._fits(np.full((item.length + 1) // 2 + 1, 4, np.int32), item.length)


def test_letters_that_the_tokenizer_lacks_are_told(tmp_path: Path) -> None:
    table = transcripts(tmp_path / "a")
    task, _, tokenizer, _ = made(spoken(table))
    rows = table.read_text().replace("0.wav\tab", "0.wav\taéb")
    table.write_text(rows)
    examples = spoken(table, "data.held_out=0.0").data.split("train", task.columns)
    told = task.corpus(examples, tokenizer).report()
    assert "1 token of 1 text unknown to the tokenizer: 'é' (1)" in told
    table.write_text(rows.upper().replace(".WAV", ".wav").replace("PATH\tTEXT", "path\ttext"))
    examples = spoken(table, "data.held_out=0.0").data.split("train", task.columns)
    with pytest.raises(InputError, match="set task.case=upper or lower"):
        task.corpus(examples, tokenizer)
    lower = task.model_copy(update={"case": "lower"})
    assert "unknown" in lower.corpus(examples, tokenizer).report()  # é alone


def test_sounds_that_are_too_long_for_a_model_are_refused_at_once(tmp_path: Path) -> None:
    given = whisper(transcripts(tmp_path / "a"), "model.frames=100")
    with pytest.raises(ConfigError, match=r"sounds of 30 seconds have 1,500 frames, the model has places for 100; set"):
        made(given)
    made(whisper(tmp_path / "a" / "clips.tsv", "model.frames=100", "task.longest=2.0"))
    with pytest.raises(ConfigError, match="the model takes logmel with bins=12, task.features is logmel with bins=13"):
        made(recipe(tmp_path / "a" / "clips.tsv", "task.features.bins=13"))
    with pytest.raises(ConfigError, match="the model takes logmel with bins=12, task.features is samples"):
        made(recipe(tmp_path / "a" / "clips.tsv", "task.features={kind = 'samples'}"))


def test_what_changes_pictures_is_nothing_for_sounds(tmp_path: Path) -> None:
    for kind in ("flip", "mixup"):
        given = recipe(classes(tmp_path / kind), f"task.augment=[{{kind = '{kind}'}}]")
        task, examples, tokenizer, _ = made(given)
        with pytest.raises(InputError, match=f"augment: {kind} is nothing for sounds"):
            task.corpus(examples, tokenizer)


# --- losses ---


def kinds(tmp_path: Path) -> list[Recipe]:
    return [
        words(classes(tmp_path / "a"), "data.held_out=0.0"),
        spoken(transcripts(tmp_path / "b"), "data.held_out=0.0"),
        whisper(transcripts(tmp_path / "c"), "data.held_out=0.0"),
    ]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_padding_changes_no_loss(tmp_path: Path, which: int) -> None:
    task, examples, tokenizer, model = made(kinds(tmp_path)[which])
    model = model.double()
    items = [task.fetch(item) for item in task.corpus(examples, tokenizer).once()]
    together = as_double(task.batch(items))
    alone = [as_double(task.batch([item])) for item in items]
    assert len({one.inputs.tokens.shape[1] for one in alone}) > (which != 0)
    with torch.no_grad():
        total = float(task.loss(model, together).total)
        apart = sum(float(task.loss(model, one).total) for one in alone)
    assert total == pytest.approx(apart, rel=1e-10)
    assert together.tokens == sum(one.tokens for one in alone)
    with torch.no_grad():
        assert float(task.loss(model, as_double(task.batch(items).silent())).total) == 0


def as_double(batch: Batch) -> Batch:
    from dataclasses import replace

    from heed.pipelines.base import Padded

    def doubled(part: Padded | None) -> Any:
        if part is None or not part.tokens.is_floating_point():
            return part
        return type(part)(part.tokens.double(), part.where)

    return replace(batch, inputs=doubled(batch.inputs), source=doubled(batch.source))


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_stop_changes_no_training(tmp_path: Path, which: int) -> None:
    given = changed(kinds(tmp_path)[which], schedule=Constant(), evaluate=6)
    train(given, tmp_path / "whole", Silent())
    train(changed(given, steps=3), tmp_path / "stopped", Silent())
    resume(tmp_path / "stopped", ["training.steps=6"], Silent())
    one, other = weights(tmp_path / "whole"), weights(tmp_path / "stopped")
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert metrics(tmp_path / "whole", "loss") == metrics(tmp_path / "stopped", "loss")


@pytest.mark.parametrize("which", [0, 1, 2])
def test_pieces_change_no_training(tmp_path: Path, which: int) -> None:
    given = still(changed(kinds(tmp_path)[which], steps=2))
    for name, pieces in (("one", 1), ("pieces", 3)):
        train(changed(given, accumulate=pieces), tmp_path / name, Silent())
    one, other = (metrics(tmp_path / name, "loss") for name in ("one", "pieces"))
    assert len(one) == 2
    assert [loss for _, loss in one] == pytest.approx([loss for _, loss in other], rel=1e-5)  # other orders of sums


@pytest.mark.parametrize("which", [1, 2])
def test_two_processes_train_like_one(tmp_path: Path, which: int) -> None:
    given = still(changed(kinds(tmp_path)[which], steps=3))
    script = tmp_path / "two.py"
    script.write_text(
        "from heed.runs.recipe import Recipe\nfrom heed.train import train\nfrom heed.show.progress import Silent\n"
        f"train(Recipe.load({given.dump()!r}), {str(tmp_path / 'two')!r}, Silent())\n"
    )
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    done = subprocess.run(launch, env=environment(OMP_NUM_THREADS="1"), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    train(given, tmp_path / "one", Silent())
    one, two = (metrics(tmp_path / name, "loss") for name in ("one", "two"))
    assert len(one) == 3
    assert [loss for _, loss in one] == pytest.approx([loss for _, loss in two], rel=1e-4)


def changed(given: Recipe, **training: Any) -> Recipe:
    return given.model_copy(update={"training": given.training.model_copy(update=training)})


def still(given: Recipe) -> Recipe:
    """Without dropout, whose draws follow the pieces."""
    return given.model_copy(update={"model": given.model.model_copy(update={"dropout": 0.0})})


def weights(run: Path) -> dict[str, Tensor]:
    return load_file(run / "model.safetensors")


def test_workers_load_the_same_batches(tmp_path: Path) -> None:
    augment = "task.augment=[{kind = 'spec'}, {kind = 'loudness'}, {kind = 'shift'}]"
    task, examples, tokenizer, _ = made(spoken(transcripts(tmp_path / "a"), augment))
    corpus = task.corpus(examples, tokenizer)

    def some(workers: int) -> list[Batch]:
        feed, loader, found = Feed(corpus, task.cost, 60, seed=3), Loader(task, workers), list[Batch]()
        for _, items in loader.over(enumerate(feed)):
            found.append(task.batch(items))
            if len(found) == 4:
                break
        loader.close()
        return found

    for here, there in zip(some(0), some(2), strict=True):
        assert torch.equal(here.inputs.tokens, there.inputs.tokens)
        assert torch.equal(here.labels, there.labels)


def test_what_is_drawn_is_of_an_example_and_its_round(tmp_path: Path) -> None:
    augment = "task.augment=[{kind = 'spec'}, {kind = 'loudness'}, {kind = 'shift'}]"
    task, examples, tokenizer, _ = made(recipe(classes(tmp_path / "a"), augment))
    corpus = task.corpus(examples, tokenizer)

    def numbers(number: int) -> dict[str, Any]:
        return {item.cell: task.fetch(item).numbers for item in corpus.round(number, 1) if isinstance(item, Sample)}

    first, again, other = numbers(1), numbers(1), numbers(2)
    assert all(np.array_equal(first[cell], again[cell]) for cell in first)
    assert not any(np.array_equal(first[cell], other[cell]) for cell in first)


# --- a training, and its use ---


@torch.no_grad()
def test_a_sound_is_heard_as_it_was_learnt(tmp_path: Path) -> None:
    """The pipeline feeds a model what the task did: the same numbers, as many of them."""
    table = transcripts(tmp_path / "a")
    fed = list[tuple[int, ...]]()
    for given in (whisper(table), spoken(table)):
        task, examples, tokenizer, model = made(given)
        item = task.corpus(examples, tokenizer).samples[0]
        pipeline = task.pipeline(model, tokenizer)
        right = pipeline._fed

        def noted(x: Tensor, right: Any = right) -> Tensor:
            fed.append(tuple(x.shape))
            return right(x)

        pipeline._fed = noted
        pipeline.transcribe(item.cell)
        assert fed.pop() == task.fetch(item).numbers.shape
        assert not fed


def test_beeps_are_learnt(tmp_path: Path) -> None:
    """Classes and letters of beeps: from files to a model that is right, beside its floors."""
    folder = classes(tmp_path / "a", each=8)
    train(recipe(folder, "training.steps=60", "training.evaluate=30"), tmp_path / "classes", Silent())
    found = heed.eval(tmp_path / "classes", data=folder, quiet=True)
    assert found["test"]["accuracy"] == 100
    assert set(found.floors["test"]) == {"majority", "linear"}
    assert found.floors["test"]["majority"]["accuracy"] == 50
    model = heed.load(tmp_path / "classes")
    assert model.can == ("classify",)
    assert model.classify(folder / "b" / "0.wav")[0].label == "b"
    several = model.classify([folder / "a" / "0.wav", str(folder / "b" / "1.wav")])
    assert [one[0].label for one in several] == ["a", "b"]


def test_what_beeps_say_is_learnt_by_ctc(tmp_path: Path) -> None:
    table = transcripts(tmp_path / "a")
    settings = ("task.augment=[]", "data.held_out=0.0", "model.dropout=0.0", "model.width=32")
    rates = ("training.steps=250", "training.evaluate=250", "training.optimizer.lr=5e-3", "training.batch=2000")
    train(spoken(table, *settings, *rates), tmp_path / "run", Silent())
    found = heed.eval(tmp_path / "run", data=table, quiet=True)["test"]
    assert found["cer"] < 10  # learnt by heart; what is not learnt has 100 and more
    model = heed.load(tmp_path / "run")
    assert model.can == ("transcribe",)
    said = model.transcribe([tmp_path / "a" / "0.wav", tmp_path / "a" / "1.wav"])
    assert said == [model.transcribe(tmp_path / "a" / f"{number}.wav") for number in (0, 1)]


def test_a_whisper_writes(tmp_path: Path) -> None:
    table = transcripts(tmp_path / "a")
    given = whisper(table, "task.augment=[]", "data.held_out=0.0", "training.steps=120", "training.optimizer.lr=5e-3")
    train(changed(given, evaluate=120, keep="last", batch=2000), tmp_path / "run", Silent())
    found = heed.eval(tmp_path / "run", data=table, quiet=True)["test"]
    assert {"wer", "cer", "exact", "loss"} <= found.keys()
    assert found["loss"] < 1.5  # four letters, a space and an end by chance: 1.8
    assert isinstance(Run.open(tmp_path / "run").recipe.task, Transcribe)
    assert isinstance(heed.load(tmp_path / "run").transcribe(tmp_path / "a" / "0.wav"), str)
