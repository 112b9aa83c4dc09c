"""How a model that transcribes is used: its features and windows, the tokens of its prompt, the languages it knows.

A pretrained one says so in the files beside its weights, one that heed trained by its task.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

from pydantic import model_validator

from ...core.config import Config, Count, Data, Flag, Positive, Size, Text, Theirs, nearest
from ...core.errors import InputError
from ...media.sounds import RATE, RATES, AnySoundFeatures, LogMel, Samples, SoundFeatures
from ...text import Tokenizer, holds
from ..base import sidecar

GENERATION, PREPROCESSOR, PROCESSOR = "generation_config.json", "preprocessor_config.json", "processor_config.json"

SpeechTask: TypeAlias = Literal["transcribe", "translate"]  # in the language that is spoken, or in English

MOST = 1 << 24  # samples of a window
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

    @property
    def frames(self) -> LogMel:
        """What the model is fed of samples."""
        return LogMel(bins=self.feature_size, rate=self.sampling_rate, window=self.n_fft, step=self.hop_length)


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

    features: AnySoundFeatures = LogMel()
    seconds: Positive = 30  # of a window
    filled: Flag = True  # silence fills up a window, as Whisper was taught
    start: Count  # the token that every text begins with
    languages: Numbered = ()  # codes and their tokens; () if the model knows English only
    tasks: Numbered = ()  # transcribe, translate
    no_timestamps: Count | None = None  # the token that asks for a text without timestamps, which come after it
    ends: tuple[Count, ...]  # tokens that end a text
    never: tuple[Count, ...] = ()  # tokens that are never generated
    never_first: tuple[Count, ...] = ()  # tokens that no text begins with
    language: Text | None = None  # unless a call names another one; None: what the model detects
    max_new_tokens: Size = LONGEST  # of a window

    @model_validator(mode="after")
    def _can_end(self) -> Self:
        if not self.ends:
            raise ValueError("no token ends a text; name eos_token_id in generation_config.json")
        return self

    def prompt_of(self, language: str | None, task: SpeechTask = "transcribe") -> list[int]:
        """<start> <language> <task> <no timestamps>, as far as the model knows them."""
        named = language or self.language
        if self.languages and named is None:
            raise InputError(
                f"the model knows {len(self.languages)} languages, and what is spoken is not said; set task.language=en"
            )
        code = None if named is None else code_of(named)
        self.must_know(code, task)
        return self.asked(code, task)

    def asked(self, code: str | None, task: SpeechTask) -> list[int]:
        """The same, of what is known to be known."""
        tokens = (dict(self.languages).get(code or ""), dict(self.tasks).get(task), self.no_timestamps)
        return [self.start, *(token for token in tokens if token is not None)]

    def must_know(self, code: str | None, task: SpeechTask) -> None:
        """Raise unless the model knows the language and the task."""
        if not self.languages:
            if task != "transcribe" or code not in (None, "en"):
                raise InputError("this model knows English only; leave language and task out")
            return
        for name, known, what in ((code, self.languages, "language"), (task, self.tasks, "task")):
            if name is not None and known and name not in dict(known):
                raise InputError(f"the {what} {name!r} is unknown to this model{nearest(name, dict(known))}")

    @classmethod
    def trained(cls, features: SoundFeatures, tokenizer: Tokenizer, *, seconds: float, most: int) -> Self:
        """Of a model that began from nothing: a sound as it is, and a text between begin and end."""
        begin, ends = tokenizer.need("begin"), (tokenizer.need("end"),)
        never = tuple(index for index in (tokenizer.pad, begin) if index is not None)
        told: Any = {"features": features, "start": begin, "ends": ends, "never": never}
        return cls(**told, seconds=seconds, filled=False, max_new_tokens=most)

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
        return cls(
            features=features.frames,
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


def settings_beside(place: Path) -> SpeechSettings | None:
    """What the files beside a Whisper say of windows, prompts and tokens; None: they hold no tokenizer."""
    if not holds(place):
        return None
    from ...text import pretrained

    config, generation = sidecar(place / "config.json"), sidecar(place / GENERATION)
    features = {"feature_size": config.get("num_mel_bins"), **features_told(place)}
    told = {name: value for name, value in features.items() if value is not None}
    return SpeechSettings.of(told, generation or config, pretrained.read(place))


def features_of(place: Path) -> SoundFeatures | None:
    """What the files beside a checkpoint say it is fed; None: they do not say it."""
    told = features_told(place)
    if not told:
        return None
    features = Features.load(told)
    if "n_fft" in told or told.get("feature_size", 1) != 1:
        return features.frames
    return Samples(rate=features.sampling_rate, standard=features.do_normalize)


def features_told(path: Path) -> Data:
    """How sounds are prepared; newer files have it among other things."""
    among = sidecar(path / PROCESSOR).get("feature_extractor")
    return sidecar(path / PREPROCESSOR) or (among if isinstance(among, dict) else {})


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
