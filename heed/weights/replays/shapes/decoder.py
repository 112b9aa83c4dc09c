"""What a language model gives: logits, hidden states and attention weights at every depth, a greedy continuation."""

from __future__ import annotations

import torch
from torch import Tensor

from ....core.contract import Where
from ....core.errors import InputError, WeightsError
from ....models import Decoder
from ....parts.feedforward.experts import Experts, balance, routed
from ....parts.feedforward.routers import Routing, SoftmaxRouter
from ....parts.outputs.loss import NO_LABEL
from ....parts.positions import Alibi
from ...families.base import Family
from ...formats.folder import INPUTS, Folder
from ..greedy import generated, greedy, is_called
from ..inputs import Outputs, Padded, sequence
from .shared import Depths, has_loss, mean_loss, must_read


def outputs(model: Decoder, family: Family, folder: Folder) -> Outputs:
    """`logits`, `last_hidden_state`, `hidden_states`, `attentions`, `loss`; `sequences` and `step_logits` of a greedy
    continuation.

    With experts also `router_logits`, and `aux_loss`: how unevenly they are used, which may count in the loss.
    """
    placed = not any(isinstance(part, Alibi) for part in model.modules())  # whether the reference reads positions
    must_read(folder, *(() if placed else ("position_ids",)))
    tokens = sequence(folder, "input_ids")
    made = _scored(model, family, folder, tokens) if is_called(folder) else {}
    stem, steps = generated(folder, tokens.shape[1])
    if steps and model.streams:
        places = "ranks" if placed else family.places  # generation hands over positions that count real tokens
        ranked = Padded.showing(folder, "attention_mask", tokens, places)
        try:
            written, made[f"{stem}step_logits"] = greedy(model, ranked.aligned(tokens), _where(folder, ranked), steps)
        except InputError as error:
            if folder.wanted is None:
                return made
            raise WeightsError(
                f"{folder.path}: {tokens.shape[1]} tokens cannot be continued by {steps}: {error}. Where a rotation "
                "depends on the length of a call, the reference turns old and new tokens differently: record a "
                "continuation that stays within one length"
            ) from None
        made[f"{stem}sequences"] = torch.cat((tokens, written), 1)
    return made


def _scored(model: Decoder, family: Family, folder: Folder, tokens: Tensor) -> Outputs:
    """All that one call tells."""
    padded = Padded.showing(folder, "attention_mask", tokens, family.places)
    where = _where(folder, padded)
    with routed(model.stack) as said:
        depths = Depths.of(model.stack, _embedded(model, family, folder, padded, where), where)
    if model.narrow is not None:
        depths.streams[-1] = model.narrow(depths.streams[-1])
    made = depths.named(padded) | _ways(said, padded)
    made["last_hidden_state"] = padded.back(depths.streams[-1])
    made["logits"] = padded.back(model.head(depths.streams[-1]))
    experts = [part.config for part in model.modules() if isinstance(part, Experts)]
    if any(isinstance(config.router, SoftmaxRouter) for config in experts):
        made["aux_loss"] = balance(said)
    if "labels" in folder.inputs:
        labels = torch.nn.functional.pad(sequence(folder, "labels")[:, 1:], (0, 1), value=NO_LABEL)
        if has_loss(folder, labels, padded.real):
            made["loss"] = mean_loss(made["logits"], labels)
            if "aux_loss" in made:
                made["loss"] += max(config.balance for config in experts) * made["aux_loss"]
    return made


def _where(folder: Folder, padded: Padded) -> Where:
    """The stamps of the tokens, whose positions may be an input."""
    where = padded.where
    if "position_ids" not in folder.inputs:
        return where
    given, shape = sequence(folder, "position_ids"), where.shape
    if given.shape[0] not in (1, shape[0]) or given.shape[1] != shape[1] or given.is_floating_point():
        raise WeightsError(
            f"{folder.path / INPUTS}: position_ids must be whole numbers of the shape {list(shape)}, not {given.dtype} "
            f"of {list(given.shape)}"
        )
    return Where(where.order, padded.aligned(given.long().expand(shape)).masked_fill(~where.real, 0))


def _embedded(model: Decoder, family: Family, folder: Folder, padded: Padded, where: Where) -> Tensor:
    """Tokens, and what they are marked with: GPT-2 and its kin look marks up in the vocabulary."""
    x = model.embeddings.embed(padded.aligned(sequence(folder, "input_ids")), where)
    if "token_type_ids" in folder.inputs:
        if not family.typed:
            raise WeightsError(f"{folder.path}: {family.types[0]} has no token_type_ids, but the inputs hold some")
        x = x + model.embeddings.embed(padded.aligned(sequence(folder, "token_type_ids")), where)
    return model.embeddings.place(x, where)


def _ways(said: list[Routing], padded: Padded) -> Outputs:
    """The logits of every router, for all tokens of all rows one after the other."""
    real = padded.where.real
    made: Outputs = {}
    for number, (logits, *_) in enumerate(said):
        whole = logits.new_zeros(*real.shape, logits.shape[1]).masked_scatter(real[..., None], logits)
        made[f"router_logits.{number}"] = padded.back(whole).flatten(0, 1)
    return made
