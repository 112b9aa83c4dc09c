"""Speech recognition by CTC (wav2vec 2.0): every frame is labelled with a token or a blank, then labels are decoded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from torch import Tensor

from ...core.config import Config, Count, Flag, Positive, Text
from ...core.errors import InputError
from ...core.interfaces import Asked, Encodes
from ...decode import AnyStrategy, Beam, Greedy
from ...decode.ctc import best_path, prefix_beam
from ...media.sounds import AnySoundFeatures, Samples
from ...text import Tokenizer
from ..base import AnyModel
from .speech import BATCH, SpeechPipeline
from .speech_settings import Features, SpeechTask

LABELS = 1 << 20  # at most
TOKENS = {"pad": "<pad>", "bos": "<s>", "eos": "</s>", "unk": "<unk>", "word_delimiter": "|"}  # by role, if not named


class CTCSettings(Config):
    """What the model is fed, and how the labels of frames become a text."""

    features: AnySoundFeatures = Samples()
    seconds: Positive = 30  # of a window
    labels: tuple[Text, ...] = ()  # of a checkpoint without a tokenizer
    blank: Count = 0  # the label that stands for none
    space: Text = "|"  # stands between two words
    silent: tuple[Text, ...] = ("<s>", "</s>", "<unk>")  # labels that are left out
    lower: Flag = False  # texts are in lower case, whatever the labels are

    @classmethod
    def of(cls, preprocessor: Mapping[str, Any], vocabulary: Mapping[str, Any], tokens: Mapping[str, Any]) -> Self:
        """From preprocessor_config.json, vocab.json and tokenizer_config.json, as Wav2Vec2's checkpoints have them."""
        features, named = Features.load(preprocessor), named_labels(vocabulary)
        roles = {role: _text(tokens.get(f"{role}_token"), name) for role, name in TOKENS.items()}
        if roles["pad"] not in named:
            raise InputError(f"vocab.json does not hold {roles['pad']!r}, the pad_token, which is the blank")
        labels = [""] * (max(named.values()) + 1)
        for label, index in named.items():
            labels[index] = label
        return cls(
            features=Samples(rate=features.sampling_rate, standard=features.do_normalize),
            labels=tuple(labels),
            blank=named[roles["pad"]],
            space=roles["word_delimiter"],
            silent=(roles["bos"], roles["eos"], roles["unk"]),
            lower=tokens.get("do_lower_case") is True,
        )


class CTCRecognition(SpeechPipeline):
    """The most probable label of each frame; of a run of equal ones one stays, then blanks go (Graves et al. 2006).

    With `strategy=Beam(beams=...)` the most probable labels over all their paths (`decode/ctc.py`).
    """

    what = "an audio encoder that labels frames with characters (CTC)"

    def __init__(
        self,
        model: AnyModel,
        settings: CTCSettings,
        tokenizer: Tokenizer | None = None,
        strategy: AnyStrategy | None = None,
    ) -> None:
        if not (isinstance(model, Encodes) and isinstance(model, Asked) and "tagged" in model.heads):
            raise InputError("for CTC a model must label its frames; this one has no head for that")
        if tokenizer is None and not settings.labels:
            raise InputError("what the labels of frames are called is not known; give a tokenizer, or settings.labels")
        self.model, self.settings, self._words = model.eval(), settings, tokenizer
        if tokenizer is not None:
            self.tokenizer = tokenizer
        self.strategy = strategy or Greedy()
        self.rate, self.window = settings.features.rate, int(settings.seconds * settings.features.rate)
        self._encoder, self._head = model, model.heads["tagged"]

    def _said(
        self, parts: Sequence[Tensor], language: str | None, task: SpeechTask, strategy: AnyStrategy
    ) -> Iterator[str]:
        if language is not None or task != "transcribe":
            raise InputError("this model labels frames with characters (CTC); leave language and task out")
        if not isinstance(strategy, Greedy | Beam):
            raise InputError("this model labels frames (CTC): it takes the best path, or searches with beams")
        for begin in range(0, len(parts), BATCH):
            seen = self._heard([self._features(part) for part in parts[begin : begin + BATCH]])
            for row, real in zip(self._head(seen.parts[0], seen), seen.real, strict=True):
                yield self._spelled(self._found(row[real], strategy)) + " "

    def _features(self, part: Tensor) -> Tensor:
        return self.settings.features(part)

    def _found(self, logits: Tensor, strategy: AnyStrategy) -> Sequence[int]:
        if isinstance(strategy, Beam):
            return prefix_beam(logits, self.settings.blank, strategy.beams)[0].labels
        return best_path(logits, self.settings.blank)

    def _spelled(self, labels: Sequence[int]) -> str:
        """The text of labels, blanks and repetitions taken out."""
        if self._words is not None:
            return self._words.decode([index for index in labels if index < self._words.size]).strip()
        settings = self.settings
        told = (settings.labels[index] for index in labels if index < len(settings.labels))
        text = "".join(" " if one == settings.space else one for one in told if one not in settings.silent).strip()
        return text.lower() if settings.lower else text


def _text(value: Any, name: str) -> str:
    """A token as tokenizer_config.json has it: a text, or a table with its content."""
    found = value.get("content") if isinstance(value, Mapping) else value
    return found if isinstance(found, str) else name


def named_labels(vocabulary: Mapping[str, Any]) -> dict[str, int]:
    """The labels of a vocab.json with their numbers."""
    named = {label: index for label, index in vocabulary.items() if isinstance(index, int) and 0 <= index < LABELS}
    if len(named) < len(vocabulary) or not named:
        raise InputError(
            f"vocab.json must give each label a number from 0 to {LABELS - 1}; if it holds a table for each language, "
            "keep one of them"
        )
    return named
