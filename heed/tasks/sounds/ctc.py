"""Transcription by CTC: every frame of an encoder (wav2vec 2.0, or of spectrograms) has a token or a blank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch

from ...core.config import Count
from ...core.errors import ConfigError, InputError
from ...core.interfaces import Asked, Encodes
from ...parts.outputs.ctc import ctc, least_frames
from ...parts.outputs.heads import Tagged
from ...parts.outputs.loss import NO_LABEL, Loss
from ...pipelines.base import AnyModel, Ids, Padded
from ...pipelines.media.ctc import CTCRecognition, CTCSettings
from ..base import Batch, Item
from ..media.base import Frames
from .base import TranscribingTask, Transcripts

if TYPE_CHECKING:
    from ...data.base import Examples
    from ...text import Tokenizer

WHY = "their texts need more frames than they have (one for each token, and one more between equal ones)"


class CTC(TranscribingTask):
    """-log Σ_{paths that read as the text} Π_t p_t(path_t) of each sound, over all of its tokens (Graves et al. 2006).

    A text that needs more frames than its sound has is left out, and counted; so is an empty one.
    """

    kind: Literal["ctc"] = "ctc"
    blank: Count = 0  # the id that stands for no token: that of the padding

    @property
    def main(self) -> str:
        return "exact"

    def head(self) -> Tagged.Config:
        return Tagged.Config()

    def corpus(self, examples: Examples, tokenizer: Tokenizer) -> Transcripts:
        if tokenizer.pad != self.blank:
            raise ConfigError(f"the tokenizer pads with {tokenizer.pad}, task.blank is {self.blank}; make them equal")
        return self.transcripts(examples, tokenizer, self._fits, WHY)

    def batch(self, items: Sequence[Item]) -> Batch:
        loaded = self.loaded(items)
        labels = Padded.of([one.label for one in loaded], NO_LABEL).tokens
        return Batch(
            Frames.of_sounds([one.numbers for one in loaded]), labels, tokens=sum(len(one.label) for one in loaded)
        )

    def loss(self, model: AnyModel, batch: Batch) -> Loss:
        if not (isinstance(model, Encodes) and isinstance(model, Asked)):
            raise InputError(f"{type(model).__name__} cannot be asked")
        seen = model.encode(batch.inputs.tokens, batch.inputs.where)
        logits = model.heads["tagged"](seen.parts[0], seen)
        return ctc(logits, seen.real.sum(1), batch.labels, self.blank)

    def must_fit(self, model: AnyModel) -> None:
        self.must_hear(model)
        if not (isinstance(model, Asked) and "tagged" in model.heads):
            raise ConfigError(
                f"CTC asks a model about every frame, and {type(model).__name__} has no head for that; use "
                "model.kind=audio or wav2vec2. A Whisper learns by task.kind=transcribe"
            )

    def pipeline(self, model: AnyModel, tokenizer: Tokenizer) -> CTCRecognition:
        settings = CTCSettings(features=self.features, seconds=self.longest, blank=self.blank)
        return CTCRecognition(model, settings, tokenizer, self.decode)

    def _fits(self, ids: Ids, frames: int) -> bool:
        return int(least_frames(torch.from_numpy(ids)[None])[0]) <= frames
