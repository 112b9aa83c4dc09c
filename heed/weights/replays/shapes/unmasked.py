"""What encoders give whose references mix padding in, or one row of a batch with another.

In heed a row is what its own tokens make of it. Here it is computed as recorded: all columns are tokens, and what a
mask does, it does where the reference lets it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias

from torch import Tensor

from ....core.contract import Mixer
from ....core.errors import WeightsError
from ....mixers import Nystrom
from ....models import Encoder
from ....parts.outputs.loss import NO_LABEL
from ...families.fnet import FNet
from ...families.nystromformer import Nystromformer
from ...families.yoso import Yoso
from ...formats.folder import INPUTS, Folder
from ..hidden import mixers_swapped, with_weights_of
from ..inputs import Outputs, Padded, sequence
from . import encoder

MASK = "attention_mask"
Unmasked: TypeAlias = "FNet | Nystromformer | Yoso"
UNMASKED = (FNet, Nystromformer, Yoso)


def outputs(model: Encoder, family: Unmasked, folder: Folder) -> Outputs:
    """As of any encoder, but for weights where those of the reference are something else."""
    match family:
        case FNet():
            return encoder.outputs(model, family, _without_mask(folder))
        case Yoso():
            _must_be_sure(family, folder)
            return _without_weights(encoder.outputs(model, family, _labelled(model, folder)))
        case Nystromformer():
            _must_fit(family, folder)
            with mixers_swapped(model.stack, _one_batch):
                made = encoder.outputs(model, family, folder)
            return made if family.exact else _without_weights(made)


def _without_mask(folder: Folder) -> Folder:
    """The reference takes a mask and never looks at it."""
    unmasked = replace(folder)
    vars(unmasked)["inputs"] = {name: tensor for name, tensor in folder.inputs.items() if name != MASK}
    return unmasked


def _labelled(model: Encoder, folder: Folder) -> Folder:
    """Labels of single tokens count where a mask shows them."""
    if MASK not in folder.inputs or "labels" not in folder.inputs or "tagged" not in model.heads:
        return folder
    labels, shown = folder.inputs["labels"], folder.inputs[MASK] == 1
    if labels.shape != shown.shape:
        return folder  # which is refused where they are read
    counted = replace(folder)
    vars(counted)["inputs"] = folder.inputs | {"labels": labels.masked_fill(~shown, NO_LABEL)}
    return counted


def _without_weights(made: Outputs) -> Outputs:
    """The reference gives something else under that name: shares of landmarks, or what the heads say."""
    return {name: tensor for name, tensor in made.items() if not name.startswith("attentions")}


def _must_be_sure(family: Yoso, folder: Folder) -> None:
    if not family.use_expectation:
        raise WeightsError(
            f"{folder.path}: use_expectation is false, so the reference drew its hashes at random: what it gave cannot "
            "be computed again; record it with use_expectation = true"
        )


def _must_fit(family: Nystromformer, folder: Folder) -> None:
    """Raise where the reference cuts no row into equal parts: it fails there, or mixes rows and heads up."""
    if family.exact:
        return
    tokens = sequence(folder, "input_ids")
    needed = family.segment_means_seq_len // family.num_landmarks * family.num_landmarks
    if needed == family.num_landmarks:
        raise WeightsError(
            f"{folder.path}: with segment_means_seq_len = {family.segment_means_seq_len} and num_landmarks = "
            f"{needed} the reference guesses what heed computes exactly: where every token is a landmark"
        )
    if tokens.shape[1] != needed:
        raise WeightsError(
            f"{folder.path / INPUTS}: {tokens.shape[1]} tokens; with segment_means_seq_len = "
            f"{family.segment_means_seq_len} and num_landmarks = {family.num_landmarks} the reference makes sense of "
            f"{needed} tokens alone"
        )
    shown: Tensor = Padded.showing(folder, MASK, tokens).real
    if not bool(shown.all()):
        raise WeightsError(
            f"{folder.path / INPUTS}: {MASK} hides tokens, which the reference cannot where there are landmarks"
        )


class OneBatch(Nystrom):
    """The first guess of an inverse depends on all rows of a batch, as in the reference."""

    def divisor(self, columns: Tensor) -> Tensor:
        return columns.amax((-3, -2, -1) if self.coefficient == "row" else -1, keepdim=True)


def _one_batch(mixer: Mixer[Any]) -> Mixer[Any]:
    assert isinstance(mixer, Nystrom)  # there are no others in a Nyströmformer
    return with_weights_of(mixer, OneBatch)
