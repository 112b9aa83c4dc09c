"""Speech recognition: what is said in a sound, as text, with an encoder-decoder (Whisper, Radford et al. 2022).

A sound longer than a model takes at once is cut into windows that follow one another. Each ends in the quietest place
of its last seconds, so that no word is cut if there is a pause; windows are transcribed independently of one another.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

import torch
from pydantic import model_validator
from torch import Tensor

from .. import engine
from ..core.config import Config, Count, Flag, Size, Text, Theirs, nearest
from ..core.contract import Given, Where
from ..core.errors import InputError
from ..core.interfaces import Encodes, LanguageModel
from ..core.state import Seen
from ..core.tables import renamed_arguments
from ..decode import AnyStrategy, Greedy, Never, generate
from ..media.sounds import RATE, RATES, LogMel, Sound, read
from ..parts.inputs.audio import Mels
from ..text import Tokenizer
from .base import AnyModel, Pipeline
from .generation import room
from .results import Response

SpeechTask: TypeAlias = Literal["transcribe", "translate"]  # in the language that is spoken, or in English

MOST = 1 << 24  # samples of a window
BATCH = 8  # windows that are transcribed in one batch
SEARCHED, HUSH = 5.0, 0.2  # seconds at a window's end where a pause is looked for; seconds of one
GREEDY = Greedy()
MULTILINGUAL = 51865  # tokens, at least, of a Whisper that knows more than English
LONGEST = 448  # new tokens of a window, at most, where nothing else is said

Numbered: TypeAlias = tuple[tuple[Text, Count], ...]  # names and their tokens
# Whisper's languages: codes and English names (Radford et al. 2022, appendix E)
_CODES = """
en english, zh chinese, de german, es spanish, ru russian, ko korean, fr french, ja japanese, pt portuguese,
tr turkish, pl polish, ca catalan, nl dutch, ar arabic, sv swedish, it italian, id indonesian, hi hindi, fi finnish,
vi vietnamese, he hebrew, uk ukrainian, el greek, ms malay, cs czech, ro romanian, da danish, hu hungarian, ta tamil,
no norwegian, th thai, ur urdu, hr croatian, bg bulgarian, lt lithuanian, la latin, mi maori, ml malayalam, cy welsh,
sk slovak, te telugu, fa persian, lv latvian, bn bengali, sr serbian, az azerbaijani, sl slovenian, kn kannada,
et estonian, mk macedonian, br breton, eu basque, is icelandic, hy armenian, ne nepali, mn mongolian, bs bosnian,
kk kazakh, sq albanian, sw swahili, gl galician, mr marathi, pa punjabi, si sinhala, km khmer, sn shona, yo yoruba,
so somali, af afrikaans, oc occitan, ka georgian, be belarusian, tg tajik, sd sindhi, gu gujarati, am amharic,
yi yiddish, lo lao, uz uzbek, fo faroese, ht haitian creole, ps pashto, tk turkmen, nn nynorsk, mt maltese,
sa sanskrit, lb luxembourgish, my myanmar, bo tibetan, tl tagalog, mg malagasy, as assamese, tt tatar, haw hawaiian,
ln lingala, ha hausa, ba bashkir, jw javanese, su sundanese, yue cantonese
"""
LANGUAGES = {name: code for entry in _CODES.split(",") for code, name in [entry.strip().split(maxsplit=1)]}


class Features(Theirs):
    """A preprocessor_config.json."""

    feature_size: Size = 80
    sampling_rate: Size = RATE
    hop_length: Size = 160
    n_fft: Size = 400
    chunk_length: Size = 30  # seconds
    do_normalize: Flag = True  # of Wav2Vec2 alone

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.sampling_rate > RATES[1]:
            raise ValueError(f"sampling_rate is {self.sampling_rate}; heed takes at most {RATES[1]} samples a second")
        if self.sampling_rate * self.chunk_length > MOST:
            raise ValueError(
                f"{self.chunk_length} seconds of {self.sampling_rate} samples each are more than heed takes at once"
            )
        return self


class SpeechPipeline(Pipeline):
    """A model that transcribes sounds."""

    model: AnyModel
    rate: int  # samples per second
    window: int  # samples that are taken at once

    @property
    def can(self) -> tuple[str, ...]:
        return ("transcribe",)

    @renamed_arguments(how="strategy")
    def transcribe(
        self,
        sound: Sound | list[Any] | tuple[Any, ...],
        *,
        language: str | None = None,
        task: SpeechTask = "transcribe",
        strategy: AnyStrategy = GREEDY,
    ) -> Any:  # overloads of `Verbs` tell what
        """What is said in a sound file, or in mono samples at the model's rate; of a list, in each."""
        if isinstance(sound, list | tuple):
            return [self._transcribed(one, language, task, strategy) for one in sound]
        return self._transcribed(sound, language, task, strategy)

    @torch.no_grad()
    def _transcribed(self, sound: Sound, language: str | None, task: SpeechTask, strategy: AnyStrategy) -> str:
        parts = list(windows(read(sound, self.rate), self.window, self.rate))
        return "".join(self._said(parts, language, task, strategy)).strip()

    def respond(self, text: str) -> Response:
        said = self.transcribe(Path(text))
        return Response(said, {"text": said})

    @abstractmethod
    def _said(
        self, parts: Sequence[Tensor], language: str | None, task: SpeechTask, strategy: AnyStrategy
    ) -> Iterator[str]:
        """The text of each window, to be joined."""

    def _fed(self, x: Tensor) -> Tensor:
        """As the model's weights are."""
        weight = next(self.model.parameters())
        return x.to(weight.device, weight.dtype)


def windows(samples: Tensor, longest: int, rate: int) -> Iterator[Tensor]:
    """Parts of at most so many samples, one after the other; all but the last end where it is quiet."""
    begin = longest - min(int(SEARCHED * rate), longest // 2)
    hush = min(int(HUSH * rate), longest - begin)
    step = max(1, hush // 8)
    while len(samples) > longest:
        power = samples[begin:longest].square().unfold(0, hush, step).mean(1)
        quietest = len(power) - 1 - int(power.flip(0).argmin())  # the last of equals
        end = begin + quietest * step + hush // 2
        yield samples[:end]
        samples = samples[end:]
    yield samples


class WhisperGeneration(Theirs):
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


class SpeechSettings(Config):
    """What a window is, the tokens of the prompt, the tokens that are never generated."""

    features: LogMel = LogMel()
    seconds: Size = 30  # of a window
    start: Count
    languages: Numbered = ()  # codes and their tokens; () if the model knows English only
    tasks: Numbered = ()  # transcribe, translate
    no_timestamps: Count | None = None  # the token that asks for a text without timestamps, which come after it
    ends: tuple[Count, ...]
    never: tuple[Count, ...] = ()
    never_first: tuple[Count, ...] = ()
    language: Text | None = None  # unless a call names another one; None: what the model detects
    max_new_tokens: Size = LONGEST  # of a window

    @model_validator(mode="after")
    def _can_end(self) -> Self:
        if not self.ends:
            raise ValueError("no token ends a text; name eos_token_id in generation_config.json")
        return self

    @classmethod
    def of(cls, preprocessor: Mapping[str, Any], generation: Mapping[str, Any], tokenizer: Tokenizer) -> Self:
        """From preprocessor_config.json and generation_config.json; what they do not say, the tokenizer does."""
        features, wanted = Features.load(preprocessor), WhisperGeneration.load(generation)
        start = _first(wanted.decoder_start_token_id, _mark(tokenizer, "<|startoftranscript|>"))
        if start is None:
            raise InputError("neither generation_config.json nor the tokenizer names the token that begins a text")
        several = tokenizer.size >= MULTILINGUAL if wanted.is_multilingual is None else wanted.is_multilingual
        tasks = (wanted.task_to_id or _marks(tokenizer, "transcribe", "translate")) if several else {}
        named = (wanted.lang_to_id or _between(tokenizer, start, tasks.get("translate"))) if several else {}
        languages = tuple((code.strip("<|>"), index) for code, index in named.items())
        forced = {index for _, index in wanted.forced_decoder_ids or ()}
        ends = wanted.eos_token_id if isinstance(wanted.eos_token_id, tuple) else (wanted.eos_token_id,)
        window = {"window": features.n_fft, "step": features.hop_length}
        return cls(
            features=LogMel(bins=features.feature_size, rate=features.sampling_rate, **window),
            seconds=features.chunk_length,
            start=start,
            languages=languages,
            tasks=tuple(tasks.items()),
            no_timestamps=_first(wanted.no_timestamps_token_id, _mark(tokenizer, "<|notimestamps|>")),
            ends=tuple(end for end in ends if end is not None) or tokenizer.ends,
            never=wanted.suppress_tokens or (),
            never_first=wanted.begin_suppress_tokens or (),
            language=wanted.language or next((code for code, index in languages if index in forced), None),
            max_new_tokens=wanted.max_new_tokens or wanted.max_length or LONGEST,
        )


class SpeechRecognition(SpeechPipeline):
    """The prompt is <start> <language> <task> <no timestamps>; the completion is the text of a window."""

    what = "an encoder-decoder that transcribes speech"

    def __init__(self, model: AnyModel, tokenizer: Tokenizer, settings: SpeechSettings) -> None:
        if not (isinstance(model, Encodes) and isinstance(model, LanguageModel)):
            raise InputError(
                f"to transcribe, a model needs an audio encoder and a decoder; {type(model).__name__} has not both"
            )
        self.model, self.tokenizer, self.settings = model.eval(), tokenizer, settings
        self.rate, self.window = settings.features.rate, settings.seconds * settings.features.rate
        self._encoder = model
        self._must_fit(model)

    def language(self, sound: Sound) -> str | None:
        """The code of the language that a sound begins in; None if the model knows English only."""
        first = next(windows(read(sound, self.rate), self.window, self.rate))
        with torch.no_grad():
            return self._detected(self._first_logits(self._encoded([first])))

    def _must_fit(self, model: AnyModel) -> None:
        """Raise unless the model takes what the features of a window are."""
        embeddings, features = model.get_submodule("encoder.embeddings"), self.settings.features
        if not isinstance(embeddings, Mels):
            return
        bins, frames = embeddings.first.in_channels, self.window // features.step
        if bins != features.bins:
            raise InputError(
                f"the model takes {bins} mel bins (num_mel_bins), the features have {features.bins} (feature_size in "
                "preprocessor_config.json); set the latter to the former"
            )
        if embeddings.position is not None and frames > 2 * (longest := embeddings.position.longest or frames):
            raise InputError(
                f"a window of {self.settings.seconds} seconds has {frames} frames, the model has places for "
                f"{2 * longest}; set chunk_length in preprocessor_config.json accordingly"
            )

    def _said(
        self, parts: Sequence[Tensor], language: str | None, task: SpeechTask, strategy: AnyStrategy
    ) -> Iterator[str]:
        named = language or self.settings.language
        code = None if named is None else code_of(named)
        self._must_know(code, task)
        for begin in range(0, len(parts), BATCH):
            heard = self._encoded(parts[begin : begin + BATCH])
            logits = self._first_logits(heard)
            code = code or self._detected(logits)
            yield from self._generated(heard, self._prompt(code, task), logits.shape[1], strategy)

    def _encoded(self, parts: Sequence[Tensor]) -> Seen:
        padded = (torch.nn.functional.pad(part, (0, self.window - len(part))) for part in parts)
        features = self._fed(torch.stack([self.settings.features(part) for part in padded]))
        return engine.compile(self._encoder).encode(features, Where.run(*features.shape[:2], device=features.device))

    def _first_logits(self, heard: Seen) -> Tensor:
        """Of the token after the start: which language it is. [rows, vocabulary]"""
        rows = heard.shape[0]
        tokens = torch.full((rows, 1), self.settings.start, device=heard.order.device)
        logits, _ = engine.compile(self.model)(
            tokens, Where.run(rows, 1, device=tokens.device).give(encoder_output=heard)
        )
        return logits[:, 0]

    def _detected(self, logits: Tensor) -> str | None:
        """The most probable language of the first window."""
        found = {code: float(logits[0, token]) for code, token in self.settings.languages if token < logits.shape[1]}
        return max(found, key=lambda code: found[code], default=None)

    def _must_know(self, code: str | None, task: SpeechTask) -> None:
        if not self.settings.languages:
            if task != "transcribe" or code not in (None, "en"):
                raise InputError("this model knows English only; leave language and task out")
            return
        for name, known, what in ((code, self.settings.languages, "language"), (task, self.settings.tasks, "task")):
            if name is not None and known and name not in dict(known):
                raise InputError(f"the {what} {name!r} is unknown to this model{nearest(name, dict(known))}")

    def _prompt(self, code: str | None, task: SpeechTask) -> list[int]:
        settings = self.settings
        asked = (dict(settings.languages).get(code or ""), dict(settings.tasks).get(task), settings.no_timestamps)
        return [settings.start, *(token for token in asked if token is not None)]

    def _generated(self, heard: Seen, prompt: list[int], vocabulary: int, strategy: AnyStrategy) -> Iterator[str]:
        settings = self.settings
        found = generate(
            self.model,
            [prompt] * heard.shape[0],
            max_new_tokens=min(settings.max_new_tokens, room(self.model) - len(prompt)),
            end=settings.ends,
            strategy=strategy,
            given=Given(encoder_output=heard),
            constraint=Never(settings.never, vocabulary, settings.never_first),
        )
        words = min(self.tokenizer.size, vocabulary if settings.no_timestamps is None else settings.no_timestamps)
        for best in found:
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


def code_of(language: str) -> str:
    """The code of a language that is named in English, by its code, or as a token <|en|>."""
    plain = language.strip("<|> ").lower()
    return LANGUAGES.get(plain, plain)
