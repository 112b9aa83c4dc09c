"""Reading what foreign code raises: where it was, what it tells of the sizes it wants, and how to say so briefly."""

from __future__ import annotations

import inspect
import math
import re
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..sizes import Sizes, size_word

SHOWN = 4  # attempts that an error message lists
STUCK = 20  # attempts that end alike: the next would, too
LARGEST = 4096  # sizes beyond this are not tried


def place_of(error: BaseException) -> str:
    """file:line of the user's own code where it was raised, or nothing."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _theirs(f.filename)]
    return f"{_short(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""


def raised_by(error: BaseException) -> str:
    """The line of source that raised it, if it asserts something without a word of what."""
    if not isinstance(error, AssertionError) or str(error):
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    return (frames[-1].line or "") if frames else ""


def _theirs(filename: str) -> bool:
    plain = filename.replace("\\", "/")
    return "heed/check" not in plain and f"{_TORCH}/" not in plain and not plain.startswith("<frozen")


_TORCH = str(Path(torch.__file__).parent).replace("\\", "/")


def _short(filename: str) -> str:
    try:
        return str(Path(filename).relative_to(Path.cwd()))
    except ValueError:
        return filename


@dataclass
class Tries:
    """What was tried and what came of it; the message shows the few attempts that say most."""

    found: list[tuple[str, BaseException]] = field(default_factory=list)

    def add(self, words: str, error: BaseException) -> None:
        self.found.append((words, error.with_traceback(error.__traceback__)))

    @property
    def stuck(self) -> bool:
        """Whether one thing was raised again and again, whatever was passed."""
        last = [(type(error), str(error)) for _, error in self.found[-STUCK:]]
        return len(last) == STUCK and len(set(last)) == 1

    def undefined(self) -> str | None:
        """What to say where the target's own code reads a name that is nowhere defined: no argument can help."""
        for _, error in self.found:
            if type(error) is NameError and error.name and (place := place_of(error)):
                return f"{error.name!r} is not defined at {place}; define or import it there, and check again"
        return None

    def words(self) -> str:
        """Errors of the user's own code that differ in kind, those that came furthest first."""
        kinds: dict[tuple[str, str, str], tuple[int, str]] = {}
        for words, error in self.found:
            place, said = place_of(error), _clipped(str(error))
            key = (type(error).__name__, re.sub(r"\d+", "#", said), place)
            where = f" ({place})" if place else ""
            depth = int(place.rpartition(":")[2] or 0)
            kinds.setdefault(key, (depth, f"{words}: {type(error).__name__}: {said}{where}"))
        best = sorted(kinds.values(), key=lambda one: -one[0])[:SHOWN]
        return "\n  ".join(text for _, text in best) or "nothing: its signature says nothing"


def _clipped(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 160 else line[:157] + "..."


def resized(error: BaseException, sizes: Sizes) -> Iterator[Sizes]:
    """Other sizes that an error asks for: a width, a number of tokens."""
    text = str(error)
    if match := re.search(r"cannot be multiplied \(\d+x(\d+) and (\d+)x\d+\)", text):
        yield from _instead(int(match[1]), int(match[2]), sizes)
    if match := re.search(r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)", text):
        yield from _instead(int(match[1]), int(match[2]), sizes)
        yield from _instead(int(match[2]), int(match[1]), sizes)
    if match := re.search(
        r"has size (\d+) for operand \d+ which does not broadcast with previously seen size (\d+)", text
    ):
        yield from _instead(int(match[2]), int(match[1]), sizes)
        yield from _instead(int(match[1]), int(match[2]), sizes)
    if match := re.search(r"can't divide axis of length (\d+) in chunks of (\d+)", text):
        yield from _in_chunks(int(match[1]), int(match[2]), sizes)
    yield from _of_pattern(text, sizes)
    if match := re.search(r"normalized_shape=\[(\d+)\]", text):
        yield from _instead(sizes.width, int(match[1]), sizes)
    if match := re.search(r"to have (\d+) channels, but got (\d+)", text):
        yield from _instead(sizes.width, int(match[1]), sizes)
    if match := re.search(r"per channel: \((\d+) x (\d+)\)\. Kernel size: \((\d+) x (\d+)\)", text):
        side = max(int(match[3]), int(match[4])) + 3  # of an image that is too small for a kernel
        if sizes.tokens < side * side <= 256:
            yield replace(sizes, tokens=side * side)
    if isinstance(error, AssertionError | ValueError) and not re.search(r"unpack|normalized_shape", text):
        for number in [int(n) for n in re.findall(r"\b\d+\b", text)][:4]:
            if number not in (sizes.tokens, sizes.width, sizes.rows):
                yield from _instead(sizes.tokens, number, sizes)


def _of_pattern(text: str, sizes: Sizes) -> Iterator[Sizes]:
    """Lengths that a pattern of einops wants: "b (h w) d" with h and w, "b c (x p) (y q)" with p and q."""
    told = re.search(r'pattern "(.*?)->.*shape: torch\.Size\(\[(.*?)\]\).*info: (\{.*?\})', text, re.DOTALL)
    if told is None:
        return
    known = {name: int(size) for name, size in re.findall(r"'(\w+)': (\d+)", told[3])}
    axes, shape = re.findall(r"\([^)]*\)|\S+", told[1]), [int(size) for size in told[2].split(",")]
    if len(axes) != len(shape):
        return
    found = list[tuple[int, int]]()  # of each axis that is put together: how long it is, how long it should be
    for axis, size in zip(axes, shape, strict=True):
        parts = axis.strip("()").split()
        unit = math.prod(known[part] for part in parts if part in known)
        if axis.startswith("(") and unit > 1 and size != sizes.width:
            found.append((size, unit * (2 if any(part not in known for part in parts) else 1)))
    if len(found) == 1:
        yield from _instead(*found[0], sizes)
    elif len(found) == 2:  # the sides of an image
        yield from _instead(sizes.tokens, found[0][1] * found[1][1], sizes)


def _in_chunks(length: int, chunk: int, sizes: Sizes) -> Iterator[Sizes]:
    """Chunks of which the tokens are made, or all of them but one or two that stand in front."""
    if 0 <= sizes.tokens - length <= 2:
        for whole in (2 * chunk, chunk):
            yield from _instead(sizes.tokens, whole + sizes.tokens - length, sizes)


def _instead(given: int, wanted: int, sizes: Sizes) -> Iterator[Sizes]:
    others = (sizes.rows, sizes.tokens, sizes.source, sizes.width, sizes.heads)
    if wanted in others or not 1 < wanted <= LARGEST:  # sizes stay different: one taken for another must show
        return
    beside = sizes.width + (sizes.memory or sizes.width)
    if given == beside and wanted > sizes.width:  # a query and what is looked at, side by side
        yield replace(sizes, memory=wanted - sizes.width)
    if given == sizes.width:
        yield replace(sizes, width=wanted)
        yield replace(sizes, memory=wanted)
    elif given == sizes.tokens and wanted <= 256:
        yield replace(sizes, tokens=wanted)
    elif given == sizes.tokens + 1 and wanted <= 257:  # a token of its own stands before them
        yield replace(sizes, tokens=wanted - 1)
    elif given == sizes.source and wanted <= 256:
        yield replace(sizes, source=wanted)


def lengths_of(module: Any) -> list[int]:
    """Numbers of tokens that a module's own attributes speak of: those of a window, of an image, of a longest text."""
    found: list[int] = []
    for part in module.modules() if isinstance(module, nn.Module) else ():
        for name, value in vars(part).items():
            word = size_word(name)
            if word not in ("window", "side", "longest"):
                continue
            if isinstance(value, int) and not isinstance(value, bool):
                found += [2 * value, value, value * value] if word != "longest" else [value]
            elif isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(v, int) for v in value):
                found.append(value[0] * value[1])
    return [n for n in dict.fromkeys([*found, *_areas(module)]) if 1 < n <= 256][:4]


def _areas(module: Any) -> list[int]:
    """Pairs of numbers that its constructor takes if it is told nothing else: heights and breadths."""
    if not isinstance(module, nn.Module):
        return []
    defaults = [p.default for p in inspect.signature(type(module)).parameters.values()]
    pairs = [d for d in defaults if isinstance(d, tuple | list) and len(d) == 2]
    return [pair[0] * pair[1] for pair in pairs if all(type(part) is int for part in pair)]
