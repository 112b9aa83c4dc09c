"""What an encoder-decoder gives: hidden states and attention weights of both sides, logits, a greedy translation."""

from __future__ import annotations

import torch
from torch import Tensor

from ....core.contract import Given, Where
from ....core.errors import WeightsError
from ....core.state import Seen
from ....models import Encoder, Seq2seq
from ...families.base import Family
from ...families.encoder_decoders import TwoSided
from ...formats.folder import Folder
from ..greedy import generated, greedy, is_called
from ..inputs import Outputs, Padded, sequence
from .shared import Depths, has_loss, mean_loss, must_read


def outputs(model: Seq2seq, family: Family, folder: Folder) -> Outputs:
    """`encoder_hidden_states`, `encoder_attentions`, `encoder_last_hidden_state`, and all that `written` makes."""
    if not isinstance(model.encoder, Encoder):
        raise WeightsError(f"{folder.path}: its encoder reads no tokens")
    must_read(folder, "position_ids")
    tokens = sequence(folder, "input_ids")
    source = Padded.showing(folder, "attention_mask", tokens, family.places)
    depths = Depths.of(
        model.encoder.stack, model.encoder.embeddings(source.aligned(tokens), source.where), source.where
    )
    encoder_output = Seen.of(source.where, depths.streams[-1])
    made = depths.named(source, side="encoder_") | {"encoder_last_hidden_state": source.back(depths.streams[-1])}
    return made | written(model, family, folder, encoder_output, source)


def written(model: Seq2seq, family: Family, folder: Folder, encoder_output: Seen, source: Padded) -> Outputs:
    """The decoder's half, whatever was read: what `decoded` gives, `loss`, `sequences`, `step_logits`.

    The target is `decoder_input_ids` or else `labels`, shifted. The greedy one begins with `decoder_input_ids`, too;
    under the name `generate.sequences` it begins with nothing but the start.
    """
    made: Outputs = {}
    target = _target(family, folder) if is_called(folder) else None
    if target is not None:
        padded = Padded.showing(folder, "decoder_attention_mask", target, family.places)
        made |= decoded(model, target, padded, encoder_output, source)
        if "labels" in folder.inputs:
            labels = sequence(folder, "labels")
            if has_loss(folder, labels, padded.real):
                made["loss"] = mean_loss(made["logits"], labels)
    stem, steps = generated(folder, 1)
    if steps:
        rows = encoder_output.shape[0]
        asked = "decoder_input_ids" in folder.inputs and not stem
        prompt = sequence(folder, "decoder_input_ids") if asked else torch.full((rows, 1), _begun(family, folder).start)
        where = Where.run(rows, prompt.shape[1])
        tokens, made[f"{stem}step_logits"] = greedy(model, prompt, where, steps, Given(encoder_output=encoder_output))
        made[f"{stem}sequences"] = torch.cat((prompt, tokens), 1)
    return made


def decoded(model: Seq2seq, target: Tensor, padded: Padded, encoder_output: Seen, source: Padded) -> Outputs:
    """Of a whole target: `decoder_hidden_states`, both attentions, `last_hidden_state`, `logits`."""
    decoder, where = model.decoder, padded.where.give(encoder_output=encoder_output)
    depths = Depths.of(decoder.stack, decoder.embeddings(padded.aligned(target), where), where)
    stream = depths.streams[-1]
    made = depths.named(padded, source, side="decoder_")
    made["last_hidden_state"] = padded.back(stream)
    made["logits"] = padded.back(decoder.head(stream if decoder.narrow is None else decoder.narrow(stream)))
    return made


def _target(family: Family, folder: Folder) -> Tensor | None:
    """What the decoder is fed, if the folder says it."""
    if "decoder_input_ids" in folder.inputs:
        return sequence(folder, "decoder_input_ids")
    return _begun(family, folder).shifted(sequence(folder, "labels")) if "labels" in folder.inputs else None


def _begun(family: Family, folder: Folder) -> TwoSided:
    if not isinstance(family, TwoSided):
        raise WeightsError(f"{folder.path}: {type(family).__name__} does not say what its targets begin with")
    return family
