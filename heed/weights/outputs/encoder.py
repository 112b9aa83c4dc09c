"""What an encoder gives: streams and weights at every depth, and the answers of its heads."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ...core.contract import Where
from ...core.errors import WeightsError
from ...models import Encoder
from ...parts.heads import Pooled
from ..family import Family
from ..feed import Outputs, Padded, sequence
from ..folder import INPUTS, Folder
from ..onesided import OneSided
from .shared import Depths, mean_loss

PAIRS = {  # what a family calls the scores of two sentences, and their labels, where it is trained on both
    "albert": ("sop_logits", "sentence_order_label"),
}
PAIR = ("seq_relationship_logits", "next_sentence_label")


def outputs(model: Encoder, family: Family, folder: Folder) -> Outputs:
    """`last_hidden_state`, `hidden_states`, `attentions`, what the heads say, and the loss if labels are given."""
    tokens = sequence(folder, "input_ids")
    padded = Padded.showing(folder, "attention_mask", tokens, family.places)
    where = _where(family, folder, padded, tokens)
    depths = Depths.of(model.stack, model.front(padded.front(_fields(model, folder, tokens)), where), where)
    stream = depths.streams[-1]
    made = depths.named(padded) | {"last_hidden_state": padded.back(stream)}
    names = _names(model, folder)
    for kind, head in model.heads.items():
        answer = head(stream, where)
        if isinstance(head, Pooled):
            made["pooler_output" if head.scores is None else names[kind]] = answer
        elif kind == "spans":
            made["start_logits"], made["end_logits"] = padded.back(answer).unbind(-1)
        else:
            made[names[kind]] = padded.back(answer)
    loss = _loss(model, folder, made, padded.real)
    return made if loss is None else made | {"loss": loss}


def _where(family: Family, folder: Folder, padded: Padded, tokens: Tensor) -> Where:
    """The stamps of the tokens at the front."""
    where = padded.where
    if not isinstance(family, OneSided) or family.uncounted is None:
        return where
    counted = tokens != family.uncounted
    if bool((padded.real & ~counted).any()):
        raise WeightsError(
            f"{folder.path / INPUTS}: input_ids holds {family.uncounted}, which is padding, where attention_mask shows "
            "it to the model; heed never looks at padding"
        )
    position = padded.front(counted.cumsum(1) - 1)
    return Where(where.order, position.masked_fill(~where.real, 0))


def _fields(model: Encoder, folder: Folder, tokens: Tensor) -> Tensor:
    """Every token with the fields that the model knows; those that are not given are 0. [B, T, fields]"""
    fields = [tokens[..., None]]
    if model.front.segment is not None:
        given = "token_type_ids" in folder.inputs
        fields.append(sequence(folder, "token_type_ids")[..., None] if given else torch.zeros_like(fields[0]))
    if model.front.box is not None:
        given = "bbox" in folder.inputs
        fields.append(sequence(folder, "bbox", 4) if given else torch.zeros_like(fields[0]).expand(-1, -1, 4))
    try:
        return torch.cat(fields, -1)
    except RuntimeError:
        shapes = ", ".join(str(list(field.shape[:2])) for field in fields)
        raise WeightsError(f"{folder.path / INPUTS}: ids, segments and boxes have the shapes {shapes}") from None


def _names(model: Encoder, folder: Folder) -> dict[str, str]:
    """What the scores of each head are called: logits, unless the model is trained on two things at once."""
    names = dict.fromkeys(model.heads, "logits")
    if "masked" not in model.heads or "pooled" not in model.heads or model.heads["pooled"].scores is None:
        return names
    told = " ".join(map(str, folder.config.get("architectures") or ()))
    pair = PAIRS.get(folder.family, PAIR)[0]
    if "MaskedLM" in told:
        return names | {"pooled": pair}
    if "NextSentence" in told:
        return names | {"masked": "prediction_logits"}
    return names | {"masked": "prediction_logits", "pooled": pair}


def _loss(model: Encoder, folder: Folder, made: Outputs, real: Tensor) -> Tensor | None:
    """The mean cross-entropy, summed over what is asked, if everything that it needs is there."""
    given = folder.inputs
    if "spans" in model.heads:
        return _span_loss(folder, made, real)
    if "labels" not in given:
        return None
    if "logits" not in made:
        name, label = PAIRS.get(folder.family, PAIR)
        if name not in made or label not in given:
            return None
        return _mean(made["prediction_logits"], given["labels"]) + _mean(made[name], given[label].flatten())
    if "replaced" in model.heads:
        shown = given["labels"][real].to(made["logits"])
        return F.binary_cross_entropy_with_logits(made["logits"][real], shown)
    of_numbers = made["logits"].dim() == 2 and made["logits"].shape[-1] == 1  # a text has a value, not a class
    if of_numbers or given["labels"].is_floating_point():
        return None
    return _mean(made["logits"], given["labels"])


def _mean(scores: Tensor, labels: Tensor) -> Tensor:
    if labels.shape != scores.shape[:-1]:
        raise WeightsError(f"labels have the shape {list(labels.shape)}; needed is {list(scores.shape[:-1])}")
    return mean_loss(scores, labels)


def _span_loss(folder: Folder, made: Outputs, real: Tensor) -> Tensor | None:
    """The mean of both ends. Theirs counts the scores of padding, which heed does not have: then there is none."""
    names = {"start_logits": "start_positions", "end_logits": "end_positions"}
    if not bool(real.all()) or any(name not in folder.inputs for name in names.values()):
        return None
    tokens = real.shape[1]
    ends = (
        F.cross_entropy(made[scores], folder.inputs[label].flatten().clamp(0, tokens), ignore_index=tokens)
        for scores, label in names.items()
    )
    return sum(ends, torch.zeros(())) / 2
