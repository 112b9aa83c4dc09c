"""An encoder-decoder in use that writes what it hears (Whisper, Radford et al. 2022)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self, TypeAlias

import torch
from pydantic import model_validator
from torch import Tensor

from .. import engine
from ..core.config import Config, Count, Flag, Size, Text, Theirs, nearest
from ..core.contract import Given, Where
from ..core.errors import InputError
from ..core.interfaces import Encodes, LanguageModel
from ..core.state import Seen
from ..decode import AnyStrategy, Never, generate
from ..media.sounds import LogMel, Sound, read
from ..parts.inputs.audio import Mels
from ..tasks.base import AnyModel
from ..text import Tokenizer
from .base import room
from .languages import code_of
from .speech import TOGETHER, Features, Hearer, Wish, windows

Numbered: TypeAlias = tuple[tuple[Text, Count], ...]  # names and their tokens

MULTILINGUAL = 51865  # tokens, at least, of a Whisper that knows more than English
ENOUGH = 448  # tokens of a window's text, at most, where nobody says otherwise


class Generation(Theirs):
    """A generation_config.json; in older checkpoints the same fields are in the config.json."""

    decoder_start_token_id: Count | None = None
    eos_token_id: Count | tuple[Count, ...] | None = None
    suppress_tokens: tuple[Count, ...] | None = None
    begin_suppress_tokens: tuple[Count, ...] | None = None
    forced_decoder_ids: tuple[tuple[Count, Count | None], ...] | None = None
    lang_to_id: dict[Text, Count] | None = None
    task_to_id: dict[Text, Count] | None = None
    no_timestamps_token_id: Count | None = None
    is_multilingual: Flag | None = None
    language: Text | None = None
    max_length: Size | None = None
    max_new_tokens: Size | None = None


class Dictation(Config):
    """How a text is asked for: what is heard at once, the tokens of the prompt, the tokens that are never written."""

    features: LogMel = LogMel()
    seconds: Size = 30  # that are heard at once
    start: Count
    languages: Numbered = ()  # codes and their tokens; () if the model knows English only
    wishes: Numbered = ()  # what can be asked for
    bare: Count | None = None  # the token that asks for a text without times; all after it are times
    ends: tuple[Count, ...]
    never: tuple[Count, ...] = ()
    never_first: tuple[Count, ...] = ()
    language: Text | None = None  # unless somebody names another one; None: what the model hears
    limit: Size = ENOUGH  # tokens of a window's text

    @model_validator(mode="after")
    def _can_end(self) -> Self:
        if not self.ends:
            raise ValueError("no token ends a text; name eos_token_id in generation_config.json")
        return self

    @classmethod
    def of(cls, preprocessor: Mapping[str, Any], generation: Mapping[str, Any], tokenizer: Tokenizer) -> Self:
        """From preprocessor_config.json and generation_config.json; what they do not say, the tokenizer does."""
        features, wanted = Features.load(preprocessor), Generation.load(generation)
        start = _first(wanted.decoder_start_token_id, _mark(tokenizer, "<|startoftranscript|>"))
        if start is None:
            raise InputError("neither generation_config.json nor the tokenizer names the token that begins a text")
        several = tokenizer.size >= MULTILINGUAL if wanted.is_multilingual is None else wanted.is_multilingual
        wishes = (wanted.task_to_id or _marks(tokenizer, "transcribe", "translate")) if several else {}
        named = (wanted.lang_to_id or _between(tokenizer, start, wishes.get("translate"))) if several else {}
        languages = tuple((code.strip("<|>"), index) for code, index in named.items())
        forced = {index for _, index in wanted.forced_decoder_ids or ()}
        ends = wanted.eos_token_id if isinstance(wanted.eos_token_id, tuple) else (wanted.eos_token_id,)
        window = {"window": features.n_fft, "step": features.hop_length}
        return cls(
            features=LogMel(bins=features.feature_size, rate=features.sampling_rate, **window),
            seconds=features.chunk_length,
            start=start,
            languages=languages,
            wishes=tuple(wishes.items()),
            bare=_first(wanted.no_timestamps_token_id, _mark(tokenizer, "<|notimestamps|>")),
            ends=tuple(end for end in ends if end is not None) or tokenizer.ends,
            never=wanted.suppress_tokens or (),
            never_first=wanted.begin_suppress_tokens or (),
            language=wanted.language or next((code for code, index in languages if index in forced), None),
            limit=wanted.max_new_tokens or wanted.max_length or ENOUGH,
        )


class Transcriber(Hearer):
    """The prompt is <start> <language> <task> <no times>; what is written after it is the text of a window."""

    what = "an encoder-decoder that writes what it hears"

    def __init__(self, model: AnyModel, tokenizer: Tokenizer, settings: Dictation) -> None:
        if not (isinstance(model, Encodes) and isinstance(model, LanguageModel)):
            raise InputError(f"to transcribe, a model must hear first, then write; {type(model).__name__} does not")
        self.model, self.tokenizer, self.settings = model.eval(), tokenizer, settings
        self.rate, self.window = settings.features.rate, settings.seconds * settings.features.rate
        self._reads = model
        self._must_fit(model)

    def language(self, sound: Sound) -> str | None:
        """The code of the language that a sound begins in; None if the model knows English only."""
        first = next(windows(read(sound, self.rate), self.window, self.rate))
        with torch.no_grad():
            return self._spoken(self._first_scores(self._heard([first])))

    def _must_fit(self, model: AnyModel) -> None:
        """Raise unless the model hears what the features of a window are."""
        embeddings, features = model.get_submodule("encoder.embeddings"), self.settings.features
        if not isinstance(embeddings, Mels):
            return
        bins, frames = embeddings.first.in_channels, self.window // features.step
        if bins != features.bins:
            raise InputError(
                f"the model hears {bins} mel bins (num_mel_bins), the features have {features.bins} (feature_size in "
                "preprocessor_config.json); set the latter to the former"
            )
        if embeddings.position is not None and frames > 2 * (longest := embeddings.position.longest or frames):
            raise InputError(
                f"a window of {self.settings.seconds} seconds has {frames} frames, the model has places for "
                f"{2 * longest}; set chunk_length in preprocessor_config.json accordingly"
            )

    def _texts(self, parts: Sequence[Tensor], language: str | None, task: Wish, how: AnyStrategy) -> Iterator[str]:
        named = language or self.settings.language
        code = None if named is None else code_of(named)
        self._must_know(code, task)
        for begin in range(0, len(parts), TOGETHER):
            memory = self._heard(parts[begin : begin + TOGETHER])
            scores = self._first_scores(memory)
            code = code or self._spoken(scores)
            yield from self._written(memory, self._prompt(code, task), scores.shape[1], how)

    def _heard(self, parts: Sequence[Tensor]) -> Seen:
        padded = (torch.nn.functional.pad(part, (0, self.window - len(part))) for part in parts)
        heard = self._fed(torch.stack([self.settings.features(part) for part in padded]))
        return engine.compile(self._reads).encode(heard, Where.run(*heard.shape[:2], device=heard.device))

    def _first_scores(self, memory: Seen) -> Tensor:
        """Of the token after the start: which language it is. [rows, vocabulary]"""
        rows = memory.shape[0]
        tokens = torch.full((rows, 1), self.settings.start, device=memory.order.device)
        scores, _ = engine.compile(self.model)(
            tokens, Where.run(rows, 1, device=tokens.device).give(encoder_output=memory)
        )
        return scores[:, 0]

    def _spoken(self, scores: Tensor) -> str | None:
        """The likeliest language of the first window."""
        found = {code: float(scores[0, token]) for code, token in self.settings.languages if token < scores.shape[1]}
        return max(found, key=lambda code: found[code], default=None)

    def _must_know(self, code: str | None, task: Wish) -> None:
        if not self.settings.languages:
            if task != "transcribe" or code not in (None, "en"):
                raise InputError("this model knows English only; leave language and task out")
            return
        for name, known, what in ((code, self.settings.languages, "language"), (task, self.settings.wishes, "task")):
            if name is not None and known and name not in dict(known):
                raise InputError(f"the {what} {name!r} is unknown to this model{nearest(name, dict(known))}")

    def _prompt(self, code: str | None, task: Wish) -> list[int]:
        settings = self.settings
        asked = (dict(settings.languages).get(code or ""), dict(settings.wishes).get(task), settings.bare)
        return [settings.start, *(token for token in asked if token is not None)]

    def _written(self, memory: Seen, prompt: list[int], vocabulary: int, how: AnyStrategy) -> Iterator[str]:
        settings = self.settings
        answers = generate(
            self.model,
            [prompt] * memory.shape[0],
            limit=min(settings.limit, room(self.model) - len(prompt)),
            end=settings.ends,
            how=how,
            given=Given(encoder_output=memory),
            allow=Never(settings.never, vocabulary, settings.never_first),
        )
        words = min(self.tokenizer.size, vocabulary if settings.bare is None else settings.bare)
        for best in answers:
            yield self.tokenizer.decode([token for token in best[0].tokens if token < words])


def _first(*found: int | None) -> int | None:
    return next((one for one in found if one is not None), None)


def _mark(tokenizer: Tokenizer, name: str) -> int | None:
    """The id of a special token, if there is one of that name."""
    ids = tokenizer.encode_marked(name)
    return ids[0] if tokenizer.tokens(ids) == [name] else None


def _marks(tokenizer: Tokenizer, *names: str) -> dict[str, int]:
    found = {name: _mark(tokenizer, f"<|{name}|>") for name in names}
    return {name: index for name, index in found.items() if index is not None}


def _between(tokenizer: Tokenizer, start: int, translate: int | None) -> dict[str, int]:
    """The languages: Whisper's vocabularies hold them between the token that begins and the first task."""
    ids = range(start + 1, start + 1 if translate is None else min(translate, tokenizer.size))
    return dict(zip(tokenizer.tokens(ids), ids, strict=True))
