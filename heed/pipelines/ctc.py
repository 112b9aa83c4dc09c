"""Speech recognition by CTC (wav2vec 2.0): every frame is labelled with a character, decoded along the best path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Self

import torch
from torch import Tensor

from .. import engine
from ..core.config import Config, Flag, Size, Text
from ..core.contract import Where
from ..core.errors import InputError
from ..core.interfaces import Asked, Encodes
from ..decode import AnyStrategy
from ..media.sounds import RATE, standardised
from .base import AnyModel
from .speech import BATCH, GREEDY, Features, SpeechPipeline, SpeechTask

LABELS = 1 << 20  # at most
TOKENS = {"pad": "<pad>", "bos": "<s>", "eos": "</s>", "unk": "<unk>", "word_delimiter": "|"}  # by role, if not named


class CTCSettings(Config):
    """How the labels of frames become a text: their characters, the blank, what stands between two words."""

    rate: Size = RATE
    seconds: Size = 30  # of a window
    standard: Flag = True  # samples are brought to mean 0 and variance 1
    labels: tuple[Text, ...]
    blank: Text = "<pad>"
    space: Text = "|"
    silent: tuple[Text, ...] = ("<s>", "</s>", "<unk>")  # labels that are left out
    lower: Flag = False  # texts are in lower case, whatever the labels are

    @classmethod
    def of(cls, preprocessor: Mapping[str, Any], vocabulary: Mapping[str, Any], tokens: Mapping[str, Any]) -> Self:
        """From preprocessor_config.json, vocab.json and tokenizer_config.json, as Wav2Vec2's checkpoints have them."""
        features, named = Features.load(preprocessor), _named(vocabulary)
        roles = {role: _text(tokens.get(f"{role}_token"), name) for role, name in TOKENS.items()}
        if roles["pad"] not in named:
            raise InputError(f"vocab.json does not hold {roles['pad']!r}, the pad_token, which is the blank")
        labels = [""] * (max(named.values()) + 1)
        for label, index in named.items():
            labels[index] = label
        return cls(
            rate=features.sampling_rate,
            standard=features.do_normalize,
            labels=tuple(labels),
            blank=roles["pad"],
            space=roles["word_delimiter"],
            silent=(roles["bos"], roles["eos"], roles["unk"]),
            lower=tokens.get("do_lower_case") is True,
        )


class CTCRecognition(SpeechPipeline):
    """The most probable label of each frame; of a run of equal ones one stays, then blanks go (Graves et al. 2006)."""

    what = "an audio encoder that labels frames with characters (CTC)"

    def __init__(self, model: AnyModel, settings: CTCSettings) -> None:
        if not (isinstance(model, Encodes) and isinstance(model, Asked) and "tagged" in model.heads):
            raise InputError("for CTC a model must label its frames; this one has no head for that")
        self.model, self.settings = model.eval(), settings
        self.rate, self.window = settings.rate, settings.seconds * settings.rate
        self._encoder, self._head = model, model.heads["tagged"]

    def _said(
        self, parts: Sequence[Tensor], language: str | None, task: SpeechTask, strategy: AnyStrategy
    ) -> Iterator[str]:
        if language is not None or task != "transcribe" or strategy != GREEDY:
            raise InputError("this model labels frames with characters (CTC); leave language, task and strategy out")
        for begin in range(0, len(parts), BATCH):
            some = parts[begin : begin + BATCH]
            fed = [self._fed(standardised(part) if self.settings.standard else part) for part in some]
            lengths = torch.tensor([len(part) for part in some], device=fed[0].device)
            heard = engine.compile(self._encoder).encode(
                torch.nn.utils.rnn.pad_sequence(fed, batch_first=True), Where.ragged(lengths)
            )
            best = self._head(heard.parts[0], heard).argmax(-1)
            for row, real in zip(best, heard.real, strict=True):
                yield self._decoded(row[real].tolist()) + " "

    def _decoded(self, best: Sequence[int]) -> str:
        settings = self.settings
        once = (settings.labels[index] for index, _ in groupby(best) if index < len(settings.labels))
        told = (label for label in once if label != settings.blank and label not in settings.silent)
        text = "".join(" " if label == settings.space else label for label in told).strip()
        return text.lower() if settings.lower else text


def _text(value: Any, name: str) -> str:
    """A token as tokenizer_config.json has it: a text, or a table with its content."""
    found = value.get("content") if isinstance(value, Mapping) else value
    return found if isinstance(found, str) else name


def _named(vocabulary: Mapping[str, Any]) -> dict[str, int]:
    """The labels with their numbers."""
    named = {label: index for label, index in vocabulary.items() if isinstance(index, int) and 0 <= index < LABELS}
    if len(named) < len(vocabulary) or not named:
        raise InputError(
            f"vocab.json must give each label a number from 0 to {LABELS - 1}; if it holds a table for each language, "
            "keep one of them"
        )
    return named
