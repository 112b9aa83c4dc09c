"""A text, a file or ids as a model takes them, within bounds, and what its tokens are called on each side."""

from __future__ import annotations

import base64
import binascii
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ..core.config import Config
from ..core.errors import InputError
from ..core.interfaces import LanguageModel
from ..pipelines import EncoderPipeline, Pipeline, Text2TextGeneration
from ..pipelines.attentions import Inspected, numbered
from ..pipelines.checkpoint import Bare
from ..pipelines.media.speech import SpeechPipeline
from ..pipelines.media.vision import ImageEmbedding
from ..pipelines.streams import fields_of

MOST = 4096  # tokens of a side: one layer's maps of 12 heads are 800 MB then
LETTERS = 1 << 20  # characters of a text: what is longer is not even cut into tokens
WRITTEN = 64  # tokens of an answer that the model is asked to write
SELF, ENCODER, DECODER, CROSS = "self", "encoder", "decoder", "cross"


class Given(Config):
    """What a page asks to be read: a text (with another one beside it), ids, or a file."""

    text: str | None = None
    pair: str | None = None  # the second of two texts, or what an encoder-decoder is to answer
    ids: tuple[int, ...] | None = None  # of the text, or of the answer
    file: str | None = None  # the bytes of an image or a sound, in base64


@dataclass(frozen=True)
class Scene:
    """One input, ready to be run."""

    inspected: Inspected

    def run(self, model: Any) -> None:
        """Once through the model."""
        self.inspected.run(model)

    @property
    def ids(self) -> tuple[int, ...]:
        """Of the text that is continued or read, without fields; none of an image."""
        ids = self.inspected.ids
        return () if ids is None else tuple((ids if ids.dim() == 2 else ids[..., 0])[0].tolist())

    @property
    def both(self) -> bool:
        """Whether there is a source and a target."""
        return self.inspected.source is not None and self.inspected.ids is not None

    def names(self, part: str, count: int) -> tuple[str, ...]:
        """What so many tokens of a part are called."""
        given = self.inspected
        sourced = given.source is not None and (given.ids is None or part == ENCODER)
        named = tuple(given.sources(count)) if sourced else given.tokens
        return named if len(named) == count else numbered(count)


def takes(pipeline: Pipeline) -> str:
    """What a page asks for, to give it to such a model."""
    match pipeline:
        case ImageEmbedding():
            return "image"
        case SpeechPipeline():
            return "sound"
        case Text2TextGeneration():
            return "pair"
        case EncoderPipeline():
            return "texts"
        case Bare():
            return "ids"
    return "text"


def scene(pipeline: Pipeline, given: Given) -> Scene:
    """What is given, as this model takes it."""
    if given.text is not None and len(given.text) > LETTERS:
        raise InputError(
            f"the text has {len(given.text):,} characters; at most {LETTERS:,} are read. Give a part of it"
        )
    found = Scene(_inspected(pipeline, given))
    model = pipeline.model
    _must_fit(len(found.ids), model.longest if isinstance(model, LanguageModel) else None)
    source = found.inspected.source
    if source is not None and source.dim() == 2:
        _must_fit(source.shape[1], None)
    return found


def _inspected(pipeline: Pipeline, given: Given) -> Inspected:
    kind = takes(pipeline)
    if kind in ("image", "sound"):
        return _of_file(pipeline, given)
    if kind == "pair":
        return _answering(pipeline, given)
    if given.ids is not None or kind == "ids":
        ids = _numbers(_text(given)) if given.ids is None else given.ids
        return pipeline.inspect(list(_known(ids, pipeline)))
    if isinstance(pipeline, EncoderPipeline) and given.pair is not None:
        return _two_texts(pipeline, _text(given), given.pair)
    if given.pair is not None:
        raise InputError("this model reads one text; leave the second one out")
    return pipeline.inspect(_text(given))


def _two_texts(pipeline: EncoderPipeline, text: str, pair: str) -> Inspected:
    framed = pipeline.tokenizer.framed(text, pair)
    _must_fit(len(framed.ids), pipeline.longest)
    fields = torch.tensor([list(zip(*framed, strict=True))], device=pipeline.device)
    return Inspected(fields[..., : min(2, fields_of(pipeline.model))], tuple(pipeline.tokenizer.tokens(framed.ids)))


def _answering(pipeline: Any, given: Given) -> Inspected:
    text = _text(given)
    if given.ids is not None:
        ids = _known(given.ids, pipeline)
        found: Inspected = pipeline.inspect(text, "")
        told = torch.tensor([list(ids)], device=pipeline.device)
        return replace(found, ids=told, tokens=tuple(pipeline.tokenizer.tokens(list(ids))))
    answer = given.pair if given.pair else str(pipeline.translate(text, max_new_tokens=WRITTEN))
    answered: Inspected = pipeline.inspect(text, answer)
    return answered


def _of_file(pipeline: Pipeline, given: Given) -> Inspected:
    if given.file is None:
        raise InputError(f"this is {pipeline.what}; choose a file for it")
    try:
        raw = base64.b64decode(given.file, validate=True)
    except (binascii.Error, ValueError):
        raise InputError("the file is not base64") from None
    if isinstance(pipeline, ImageEmbedding):
        return pipeline.inspect(raw)  # of an image its bytes are a source, too
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sound"
        file.write_bytes(raw)
        return pipeline.inspect(str(file))


def _text(given: Given) -> str:
    if given.text is None or not given.text.strip():
        raise InputError("the text is empty; there is nothing to look at")
    return given.text


def _numbers(text: str) -> tuple[int, ...]:
    words = text.replace(",", " ").split()
    if not all(word.isdecimal() and len(word) < 10 for word in words):
        raise InputError(f"this checkpoint has no tokenizer, so it takes ids: 5 17 2. {text[:40]!r} is something else")
    return tuple(map(int, words))


def _known(ids: Sequence[int], pipeline: Pipeline) -> Sequence[int]:
    model = pipeline.model
    size = model.vocabulary if isinstance(model, LanguageModel) else None
    if size is None and not isinstance(pipeline, Bare):
        size = pipeline.tokenizer.size
    wrong = next((index for index in ids if index < 0 or (size is not None and index >= size)), None)
    if wrong is not None:
        raise InputError(f"there is no token {wrong}" + ("" if size is None else f"; the last one is {size - 1:,}"))
    return ids


def _must_fit(count: int, longest: int | None) -> None:
    if longest is not None and count > longest:
        raise InputError(f"the text has {count:,} tokens, the model has places for {longest:,}; give a shorter one")
    if count > MOST:
        raise InputError(
            f"the text has {count:,} tokens; maps are computed for at most {MOST:,}, because each layer holds "
            f"{count:,} × {count:,} numbers per head. Give a part of it"
        )
