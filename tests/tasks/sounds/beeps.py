"""Sounds made on the spot: letters that are tones, texts that are tones one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import soundfile  # type: ignore[import-untyped]

from heed.runs import Recipe, find

TONES = {"a": 300.0, "b": 700.0, "c": 1500.0, " ": 0.0}
RATE = 8000

TINY = (
    "tokenizer.kind=char",
    "task.features.bins=12",
    "model.embeddings.bins=12",
    "model.width=16",
    "model.depth=1",
    "model.dropout=0.1",
    "model.feedforward.hidden=24",
    "training.batch=400",
    "training.steps=6",
    "training.evaluate=3",
    "training.save=3",
    "training.log=1",
    "training.schedule.warmup=2",
)


def beeps(text: str, seed: int = 0, rate: int = RATE, each: float = 0.15) -> np.ndarray:
    """A tone for each letter, and a little noise."""
    draw = np.random.default_rng(seed)
    time = np.arange(int(each * rate)) / rate
    parts = [0.5 * np.sin(2 * np.pi * TONES[letter] * time) * np.hanning(len(time)) for letter in text]
    wave = np.concatenate(parts)
    return (wave + 0.01 * draw.standard_normal(len(wave))).astype(np.float32)


def classes(folder: Path, each: int = 6, rates: Sequence[int] = (RATE,), channels: Sequence[int] = (1,)) -> Path:
    """A folder for each of two letters."""
    for letter in "ab":
        (folder / letter).mkdir(parents=True)
        for number in range(each):
            rate, many = rates[number % len(rates)], channels[number % len(channels)]
            wave = beeps(letter * 2, number, rate)
            soundfile.write(folder / letter / f"{number}.wav", np.stack([wave] * many, 1), rate)
    return folder


TEXTS = ("ab", "ba cab", "abc", "c ab", "bca", "cab ab", "a b c", "cc", "bb a", "acb", "b", "ca")


def transcripts(folder: Path, texts: Sequence[str] = TEXTS) -> Path:
    """A table of sounds and what is said in them."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = ["path\ttext"]
    for number, text in enumerate(texts):
        soundfile.write(folder / f"{number}.wav", beeps(text or "a", number), RATE)
        rows.append(f"{number}.wav\t{text}")
    (folder / "clips.tsv").write_text("\n".join(rows) + "\n")
    return folder / "clips.tsv"


def recipe(data: Path, *changes: str, name: str = "sounds") -> Recipe:
    """Whatever the data are."""
    return Recipe.read(find(name), [*TINY, f"data.train={data}", *changes])


def words(data: Path, *changes: str) -> Recipe:
    """Classes of sounds; without validation data, if those are none."""
    return recipe(data, *changes, name="speech-digits")


def spoken(data: Path, *changes: str) -> Recipe:
    """CTC."""
    return recipe(data, *changes, name="ctc-words")


WHISPER = (
    "task.kind=transcribe",
    "task.longest_text=20",
    "model={kind = 'whisper', width = 16, depth = 1, heads = 2, bins = 12, frames = 1500, longest = 20}",
)


def whisper(data: Path, *changes: str) -> Recipe:
    """An encoder-decoder."""
    tiny = [change for change in TINY if not change.startswith("model")]
    given = Recipe.read(find("transcribe"), [*tiny, *WHISPER, f"data.train={data}", *changes])
    return given.model_copy(update={"training": given.training.model_copy(update={"patience": None})})
