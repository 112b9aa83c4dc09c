"""A text, an image or ids as a model takes them: how it is called, and what its tokens are called on each side."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..core.config import Config
from ..core.contract import Where
from ..core.errors import InputError
from ..core.interfaces import Encodes, LanguageModel, Sees
from ..core.state import Seen
from ..pipelines import Pipeline

if TYPE_CHECKING:
    from ..pipelines import EncoderPipeline, Text2TextGeneration, TextGeneration
    from ..pipelines.base import AnyModel
    from ..pipelines.checkpoint import Bare
    from ..pipelines.media.vision import ImageEmbedding

MOST = 4096  # tokens of a side: one layer's maps of 12 heads are 800 MB then
LETTERS = 1 << 20  # characters of a text: what is longer is not even cut into tokens
SELF, ENCODER, DECODER, CROSS = "self", "encoder", "decoder", "cross"


class Given(Config):
    """What a page asks to be read: a text (with another one beside it), ids, or an image."""

    text: str | None = None
    pair: str | None = None  # the second of two texts, or what an encoder-decoder is to answer
    ids: tuple[int, ...] | None = None
    image: str | None = None  # the bytes of a file in base64


@dataclass(frozen=True)
class Scene:
    """One input. `call` runs the model on it and gives logits, if it gives any: [T, vocabulary]."""

    call: Callable[[], Tensor | None]
    sides: Mapping[str, tuple[str, ...]]  # the tokens of each part that attends, by its name
    ids: tuple[int, ...] = ()  # of the side that generates, if there is one

    def names(self, part: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The tokens that look, and those that are looked at."""
        if part == CROSS:
            return self.sides[DECODER], self.sides[ENCODER]
        return self.sides[part], self.sides[part]


def scene(pipeline: Pipeline, given: Given) -> Scene:
    """What is given, as this model takes it."""
    from ..pipelines import EncoderPipeline, Text2TextGeneration, TextGeneration
    from ..pipelines.checkpoint import Bare
    from ..pipelines.media.vision import ImageEmbedding

    if given.text is not None and len(given.text) > LETTERS:
        raise InputError(f"the text has {len(given.text):,} characters; at most {LETTERS:,} are read. Give a part of it")
    match pipeline:
        case ImageEmbedding():
            return _image(pipeline, given)
        case TextGeneration():
            return _generating(pipeline, given)
        case Text2TextGeneration():
            return _answering(pipeline, given)
        case EncoderPipeline():
            return _encoding(pipeline, given)
        case Bare():
            return _bare(pipeline, given)
    raise InputError(f"the studio reads texts, ids and images; this is {pipeline.what}, which takes none of them")


def _generating(pipeline: TextGeneration, given: Given) -> Scene:
    ids = given.ids or pipeline.prompt(_text(given, "a text"))
    if given.pair:
        raise InputError("this model reads one text; leave the second one out")
    return _of_language_model(pipeline.model, ids, pipeline.tokenizer.tokens(_known(ids, pipeline.tokenizer.size)))


def _of_language_model(model: AnyModel, ids: Sequence[int], names: Sequence[str]) -> Scene:
    _must_fit(len(ids), model.longest if isinstance(model, LanguageModel) else None)
    tokens = torch.tensor([list(ids)], device=model.device)
    where = Where.run(1, len(ids), device=model.device)

    def call() -> Tensor:
        logits: Tensor = model(tokens, where)[0]
        return logits[0]

    return Scene(call, {SELF: tuple(names)}, tuple(ids))


def _encoding(pipeline: EncoderPipeline, given: Given) -> Scene:
    from ..pipelines.streams import fields_of, stream_of

    if given.ids is not None:
        ids, segments = list(given.ids), [0] * len(given.ids)
    else:
        text = _text(given, "a text")
        framed = pipeline.tokenizer.framed(text) if not given.pair else pipeline.tokenizer.framed(text, given.pair)
        ids, segments = list(framed.ids), list(framed.segments)
    _must_fit(len(ids), pipeline.longest)
    names = pipeline.tokenizer.tokens(_known(ids, pipeline.tokenizer.size))
    fields = torch.tensor([list(zip(ids, segments, strict=True))], device=pipeline.device)
    tokens = fields[..., : min(2, fields_of(pipeline.model))]
    where = Where.run(1, len(ids), device=pipeline.device)

    def call() -> Tensor | None:
        stream_of(pipeline.model, tokens, where)
        return None

    return Scene(call, {SELF: tuple(names)}, tuple(ids))


def _answering(pipeline: Text2TextGeneration, given: Given) -> Scene:
    text, tokenizer = _text(given, "a source"), pipeline.tokenizer
    source = pipeline.source_ids(text)
    _must_fit(len(source), pipeline.longest)
    if given.ids is not None:
        target = list(_known(given.ids, tokenizer.size))
    else:
        written = str(pipeline.translate(text, max_new_tokens=64)) if given.pair is None else given.pair
        target = [*pipeline.prompt(text), *tokenizer.encode(written)]
    return _of_both(pipeline.model, source, target, (tokenizer.tokens(source), tokenizer.tokens(target)))


def _of_both(
    model: AnyModel, source: Sequence[int], target: Sequence[int], names: tuple[Sequence[str], Sequence[str]]
) -> Scene:
    assert isinstance(model, Encodes)
    encoder: Encodes = model
    _must_fit(len(target), model.longest if isinstance(model, LanguageModel) else None)
    read = torch.tensor([list(source)], device=model.device)
    written = torch.tensor([list(target)], device=model.device)

    def call() -> Tensor:
        output = encoder.encode(read, Where.run(*read.shape, device=read.device))
        where = Where.run(*written.shape, device=written.device).give(encoder_output=output)
        logits: Tensor = model(written, where)[0]
        return logits[0]

    return Scene(call, {ENCODER: tuple(names[0]), DECODER: tuple(names[1])}, tuple(target))


def _bare(pipeline: Bare, given: Given) -> Scene:
    """Without a tokenizer: numbers are ids, and are called so."""
    model: Any = pipeline.model
    if isinstance(model, Sees):
        raise InputError(f"this is {pipeline.what}; the studio needs its preprocessor_config.json to prepare images")
    ids = given.ids or _numbers(_text(given, "ids"))
    names = [str(index) for index in ids]
    if isinstance(model, LanguageModel) and not isinstance(model, Encodes):
        return _of_language_model(pipeline.model, _known(ids, model.vocabulary), names)
    if isinstance(model, LanguageModel):
        target = _numbers(_text(Given(text=given.pair), "ids of a target (the second field)"))
        known = _known(ids, model.vocabulary), _known(target, model.vocabulary)
        return _of_both(pipeline.model, *known, (names, [str(index) for index in target]))
    if not isinstance(model, Encodes):
        raise InputError(f"this is {pipeline.what}, which the studio cannot call")
    encoder: Encodes = model
    tokens, where = torch.tensor([list(ids)], device=pipeline.device), Where.run(1, len(ids), device=pipeline.device)

    def call() -> None:
        encoder.encode(tokens, where)

    _must_fit(len(ids), None)
    return Scene(call, {SELF: tuple(names)}, tuple(ids))


def _image(pipeline: ImageEmbedding, given: Given) -> Scene:
    if given.image is None:
        raise InputError("this model looks at images; choose one")
    try:
        raw = base64.b64decode(given.image, validate=True)
    except (binascii.Error, ValueError):
        raise InputError("the image is not base64") from None
    model = pipeline.model
    assert isinstance(model, Sees)
    sees: Sees = model
    images = pipeline.prepare.batch([raw]).to(next(model.parameters()))
    seen: list[Seen] = []
    with torch.no_grad():
        seen.append(sees.see(images))
    count = seen[0].shape[1]

    def call() -> None:
        sees.see(images)

    return Scene(call, {SELF: _patches(count)})


def _patches(count: int) -> tuple[str, ...]:
    """Names of patches by row and column; what is beyond a square stands before them (a class token)."""
    side = int(count**0.5)
    extra = count - side * side
    return (*(f"[{index}]" for index in range(extra)), *(f"{r},{c}" for r in range(side) for c in range(side)))


def _text(given: Given, needed: str) -> str:
    if given.text is None or not given.text.strip():
        raise InputError(f"{needed} is needed; what was given is empty")
    return given.text


def _numbers(text: str) -> tuple[int, ...]:
    words = text.replace(",", " ").split()
    if not all(word.isdecimal() and len(word) < 10 for word in words):
        raise InputError(f"this checkpoint has no tokenizer, so it takes ids: 5 17 2. {text[:40]!r} is something else")
    return tuple(map(int, words))


def _known(ids: Sequence[int], size: int) -> Sequence[int]:
    unknown = next((index for index in ids if not 0 <= index < size), None)
    if unknown is not None:
        raise InputError(f"there is no token {unknown}; the vocabulary has the ids 0 to {size - 1:,}")
    return ids


def _must_fit(count: int, longest: int | None) -> None:
    if longest is not None and count > longest:
        raise InputError(f"the text has {count:,} tokens, the model has places for {longest:,}; give a shorter one")
    if count > MOST:
        raise InputError(
            f"the text has {count:,} tokens; maps are computed for at most {MOST:,}, because each layer holds "
            f"{count:,} × {count:,} numbers per head. Give a part of it"
        )
    if not count:
        raise InputError("the text is empty: it has no tokens")
