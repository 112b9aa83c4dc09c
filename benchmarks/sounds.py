"""Spoken words, from scratch: which digit a clip is, and what is said in clips that were joined.

digits    the recipe speech-digits on the free spoken digit dataset: of each digit and speaker the clips 0 to 4 are the
          test, all others are learnt from; beside its floors
strings   the recipe ctc-words on two to five of those clips of one speaker, one after the other, and their names:
          clips of the training half make what is learnt from, clips of the test half what is asked

It needs HEED_DATA, a folder with audio/fsdd.4speakers.wav.zip. HEED_RUNS names a folder for the trained models.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import soundfile  # type: ignore[import-untyped]

import heed
from benchmarks.measure import Figure
from benchmarks.quality import data_file, run_folder
from benchmarks.report import Row, Target

MINUTES = 30
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
TESTED = 5  # clips of each digit and speaker, the first ones
STRINGS = {"train": 1600, "test": 200}
WORDS = (2, 5)  # clips of a string
SEED = 0


def rows(rounds: int | None) -> Iterator[Row]:
    """Both, each trained once."""
    with run_folder() as folder:
        digits = unpacked(folder / "fsdd")
        data = {split: digits / split for split in STRINGS}
        outcome = heed.train("speech-digits", data=data, out=folder / "speech-digits", quiet=True)
        found = heed.eval(folder / "speech-digits", split="test", quiet=True)
        floor = max(float(one["accuracy"]) for one in found.floors["test"].values())
        accuracy = Figure.exact(float(found["test"]["accuracy"]), "")
        target = Target(98.0, of="heed", floor=True)
        yield Row("spoken digits: accuracy; peer: its floor", accuracy, Figure.exact(floor, ""), target=target)
        minutes = Figure.exact(outcome.progress.seconds / 60, "")
        yield Row("spoken digits: minutes of training", minutes, target=Target(MINUTES, of="heed"))

        strings = {split: joined(digits / split, folder / "strings", split, count) for split, count in STRINGS.items()}
        outcome = heed.train("ctc-words", data=strings, out=folder / "ctc-words", quiet=True)
        found = heed.eval(folder / "ctc-words", split="test", quiet=True)
        for name, goal in (("cer", Target(5.0, of="heed")), ("wer", None)):
            error = Figure.exact(float(found["test"][name]), "")
            yield Row(f"digit strings: {name.upper()} in percent", error, target=goal)
        minutes = Figure.exact(outcome.progress.seconds / 60, "")
        yield Row("digit strings: minutes of training", minutes, target=Target(MINUTES, of="heed"))


def unpacked(folder: Path) -> Path:
    """The clips by split and digit: fsdd/train/7/7_theo_12.wav."""
    with zipfile.ZipFile(data_file("audio/fsdd.4speakers.wav.zip")) as file:
        for name in sorted(file.namelist()):
            if not name.endswith(".wav"):
                continue
            digit, _, number = Path(name).stem.split("_")
            place = folder / ("test" if int(number) < TESTED else "train") / digit
            place.mkdir(parents=True, exist_ok=True)
            (place / Path(name).name).write_bytes(file.read(name))
    return folder


def joined(clips: Path, folder: Path, split: str, count: int) -> Path:
    """A table of so many strings of clips, each of one speaker, and what is said in them."""
    draw, speakers = np.random.default_rng((SEED, len(split))), dict[str, list[Path]]()
    for path in sorted(clips.rglob("*.wav")):
        speakers.setdefault(path.stem.split("_")[1], []).append(path)
    names, lines = sorted(speakers), ["path\ttext"]
    (folder / split).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        known = speakers[names[number % len(names)]]
        chosen = [known[place] for place in draw.integers(0, len(known), draw.integers(WORDS[0], WORDS[1] + 1))]
        waves, rates = zip(*(soundfile.read(path, dtype="float32") for path in chosen), strict=True)
        soundfile.write(folder / split / f"{number}.wav", np.concatenate(waves), rates[0])
        said = " ".join(NAMES[int(path.stem.split("_")[0])] for path in chosen)
        lines.append(f"{split}/{number}.wav\t{said}")
    table = folder / f"{split}.tsv"
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return table
