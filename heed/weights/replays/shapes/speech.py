"""What a model that hears gives: streams and weights at every depth, labels of the frames, a text."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from ....core.contract import Where
from ....core.errors import WeightsError
from ....core.state import Seen
from ....models import AudioEncoder, Seq2seq
from ....parts.inputs.audio import Waves
from ...families.base import Family
from ...families.wav2vec2 import Wav2Vec2
from ...formats.folder import INPUTS, Folder
from ..inputs import Outputs, Padded, sequence
from .seq2seq import written
from .shared import Depths, must_read


def transcribed(model: Seq2seq, audio: AudioEncoder, family: Family, folder: Folder) -> Outputs:
    """Of an encoder-decoder (Whisper): `encoder_hidden_states`, `encoder_attentions`, and the decoder's half."""
    must_read(folder, "position_ids")
    features = folder.input("input_features")
    if features.dim() != 3:
        raise WeightsError(
            f"{folder.path / INPUTS}: input_features has the shape {list(features.shape)}; needed is "
            "[rows, bins, frames]"
        )
    where = Where.run(features.shape[0], features.shape[2])
    frames = audio.embeddings.frames(where)
    depths = Depths.of(audio.stack, audio.embeddings(features.mT, where), frames)
    source = Padded.of(frames.real)
    made = depths.named(source, side="encoder_") | {"encoder_last_hidden_state": depths.streams[-1]}
    return made | written(model, family, folder, Seen.of(frames, depths.streams[-1]), source)


def heard(model: AudioEncoder, family: Family, folder: Folder) -> Outputs:
    """Of an audio encoder alone (Wav2Vec2): `hidden_states`, `attentions`, `last_hidden_state`, `extract_features`.

    With a head `logits` and, beside `labels`, the `loss` of connectionist temporal classification.
    """
    embeddings = model.embeddings
    if not isinstance(embeddings, Waves) or not isinstance(family, Wav2Vec2):
        raise WeightsError(
            f"{folder.path}: heed has no replay for a {type(family).__name__} that hears and says nothing"
        )
    sound = sequence(folder, "input_values")
    where = Padded.showing(folder, "attention_mask", sound).where
    # The reference's statistics over time count padding, as heed's own do not.
    features, frames = embeddings.features(sound, Where.run(*sound.shape)), embeddings.frames(where)
    depths = Depths.of(model.stack, embeddings.place(embeddings.project(features), frames), frames)
    made, final = depths.named(Padded.of(frames.real)), depths.streams[-1]
    before = model.stack.layers[-1](depths.streams[-2], frames)[0]  # of the final norm, where there is one
    made |= {f"hidden_states.{len(depths.streams) - 1}": before, "last_hidden_state": final}
    made["extract_features"] = features
    if "tagged" in model.heads:
        made["logits"] = model.heads["tagged"](final, frames)
        if "labels" in folder.inputs:
            made["loss"] = ctc_loss(made["logits"], frames, sequence(folder, "labels"), family)
    return made


def ctc_loss(logits: Tensor, where: Where, labels: Tensor, family: Wav2Vec2) -> Tensor:
    """-log Σ p(path), over all paths that become the labels without repeats and blanks (Graves et al. 2006)."""
    blank = family.pad_token_id
    if blank is None:
        raise WeightsError("its config names no pad_token_id, which is the blank of a CTC loss")
    real = (labels >= 0) & (labels != blank)
    return F.ctc_loss(
        logits.log_softmax(-1).transpose(0, 1),
        labels[real],
        where.real.sum(1),
        real.sum(1),
        blank=blank,
        reduction=family.ctc_loss_reduction,
        zero_infinity=family.ctc_zero_infinity,
    )
