"""What an encoder gives: hidden states and attention weights at every depth, and the logits of its heads.

References hide padding as keys only: a hidden token still asks the others, and a head may read what it was told (the
pooler reads column 0, whatever stands there). Where the mixers can hide keys alone (`hidden_keys`), heed does the same
here, and everything is equal at every column. Otherwise real tokens are moved to the front (`Padded`), and what depends
on padding is not made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from ....core.contract import Where
from ....core.errors import WeightsError
from ....core.state import Seen
from ....models import Encoder
from ....parts.outputs.heads import Pooled
from ....parts.outputs.loss import NO_LABEL
from ...families.base import Family
from ...families.encoders import OneSided
from ...formats.folder import INPUTS, Folder
from ..hidden import can_hide, hidden_keys
from ..inputs import Outputs, Padded, sequence
from .shared import Depths, mean_loss

PAIRS = {  # what a family calls the logits of two sentences, and their labels, where it is trained on both
    "albert": ("sop_logits", "sentence_order_label"),
}
PAIR = ("seq_relationship_logits", "next_sentence_label")
BLANKED = ("deberta-v2",)  # whose embeddings are zero at padding, and whose padding looks at no token
ONE, MANY = "single_label_classification", "multi_label_classification"  # kinds of labels that a text may have
UNREAD = ("position_ids", "inputs_embeds", "head_mask", "bool_masked_pos")


def outputs(model: Encoder, family: Family, folder: Folder, marked: Tensor | None = None) -> Outputs:
    """`last_hidden_state`, `hidden_states`, `attentions`, what the heads say, and the loss if labels are given."""
    _must_be_read(folder)
    tokens = sequence(folder, "input_ids")
    shown = Padded.showing(folder, "attention_mask", tokens, family.places)
    stays = folder.family not in BLANKED and all(can_hide(block.mixer) for block in model.stack.layers)
    padded = Padded.of(torch.ones_like(shown.real)) if stays else shown
    where = padded.where if marked is None else padded.where.give(marked=padded.aligned(marked))
    x = model.embeddings(padded.aligned(_fields(model, folder, tokens)), _placed(family, where, padded, tokens))
    with hidden_keys(model, shown.real | ~padded.real):  # what was moved needs no hiding
        depths = Depths.of(model.stack, x, where)
    stream = depths.streams[-1]
    made = depths.named(padded) | {"last_hidden_state": padded.back(stream)}
    return answered(model, folder, made, Seen.of(where, stream), padded, shown.real)


def chosen(folder: Folder, encoded: Callable[[Folder], Outputs]) -> Outputs:
    """Multiple choice: of ids [rows, answers, tokens] each answer is a row of its own; `logits` are [rows, answers]."""
    ids = folder.inputs.get("input_ids")
    if ids is None or ids.dim() != 3:
        return encoded(folder)
    rows, answers = ids.shape[:2]
    labels, flat = folder.inputs.get("labels"), replace(folder)
    given = {name: tensor for name, tensor in folder.inputs.items() if name != "labels"}
    vars(flat)["inputs"] = {
        name: tensor.flatten(0, 1) if tensor.shape[:2] == (rows, answers) else tensor for name, tensor in given.items()
    }
    made = encoded(flat)
    if "logits" not in made or made["logits"].shape != (rows * answers, 1):
        raise WeightsError(
            f"{folder.path / INPUTS}: input_ids has the shape {list(ids.shape)}, answers to choose from; this model "
            "has no head that gives one logit to each"
        )
    made["logits"] = made["logits"].reshape(rows, answers)
    if labels is None:
        return made
    if labels.numel() != rows or labels.is_floating_point():
        raise WeightsError(
            f"{folder.path / INPUTS}: labels are {labels.dtype} of the shape {list(labels.shape)}; needed is the "
            f"number of an answer for each of {rows} rows"
        )
    return made | {"loss": mean_loss(made["logits"], labels.flatten().long())}


def answered(model: Encoder, folder: Folder, made: Outputs, read: Seen, padded: Padded, shown: Tensor) -> Outputs:
    """With what the heads say of this stream, and the loss if labels are given; `shown` is what the mask shows."""
    names, stream, where = _names(model, folder), read.parts[0], read
    for kind, head in model.heads.items():
        answer = head(stream, where)
        if isinstance(head, Pooled):
            if bool(padded.real[:, 0].all()):  # otherwise theirs is about padding
                made["pooler_output" if head.scores is None else names[kind]] = answer
        elif kind == "spans":
            made["start_logits"], made["end_logits"] = padded.back(answer).unbind(-1)
        else:
            made[names[kind]] = padded.back(answer)
    if "pooled" in model.heads and folder.family in BLANKED and _untold(folder, made):
        return made | _blanked_loss(made["logits"], folder.inputs["labels"])
    loss = _loss(model, folder, made, shown, padded.real)
    return made if loss is None else made | {"loss": loss}


def _must_be_read(folder: Folder) -> None:
    """Raise if an input that heed does not read would change the answer."""
    given = [name for name in UNREAD if name in folder.inputs]
    if given:
        raise WeightsError(
            f"{folder.path / INPUTS} holds {' and '.join(given)}, which heed does not read for {folder.family}, and "
            "which changes what the model gives; record inputs and outputs without"
        )


def _placed(family: Family, where: Where, padded: Padded, tokens: Tensor) -> Where:
    """The stamps that the embeddings are placed by. Where ids are counted, a padding id stands before all others."""
    if not isinstance(family, OneSided) or family.uncounted is None:
        return where
    counted = tokens != family.uncounted
    return Where(where.order, padded.aligned((counted.cumsum(1) - 1).masked_fill(~counted, -1)))


def _fields(model: Encoder, folder: Folder, tokens: Tensor) -> Tensor:
    """Every token with the fields that the model knows; those that are not given are 0. [B, T, fields]"""
    fields = [tokens[..., None]]
    if model.embeddings.segment is not None:
        given = "token_type_ids" in folder.inputs
        fields.append(sequence(folder, "token_type_ids")[..., None] if given else torch.zeros_like(fields[0]))
    if model.embeddings.box is not None:
        given = "bbox" in folder.inputs
        fields.append(sequence(folder, "bbox", 4) if given else torch.zeros_like(fields[0]).expand(-1, -1, 4))
    try:
        return torch.cat(fields, -1)
    except RuntimeError:
        shapes = ", ".join(str(list(field.shape[:2])) for field in fields)
        raise WeightsError(f"{folder.path / INPUTS}: ids, segments and boxes have the shapes {shapes}") from None


def _names(model: Encoder, folder: Folder) -> dict[str, str]:
    """What the logits of each head are called: `logits`, unless the model is trained on two things at once."""
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


def _loss(model: Encoder, folder: Folder, made: Outputs, shown: Tensor, equal: Tensor) -> Tensor | None:
    """What is asked, scored and summed, if everything that it needs is there.

    `shown` is what the mask shows; `equal`, where heed gives what the reference gives: no label may lie elsewhere.
    """
    given = folder.inputs
    if "spans" in model.heads:
        return _span_loss(folder, made, equal)
    if "labels" not in given:
        return None
    labels = given["labels"]
    if "replaced" in model.heads:
        _must_have(labels, shown.shape)
        return F.binary_cross_entropy_with_logits(made["logits"][shown], labels[shown].to(made["logits"]))
    if "logits" in made and made["logits"].dim() == 2:
        return _text_loss(folder, made["logits"], labels)
    name_of = "logits" if "logits" in made else "prediction_logits"
    if name_of not in made:
        return None
    _must_have(labels, equal.shape)
    if bool((labels[~equal] != NO_LABEL).any()):
        return None
    if name_of == "logits":
        return _mean(made[name_of], labels)
    name, label = PAIRS.get(folder.family, PAIR)
    if name not in made or label not in given:
        return None
    return _mean(made[name_of], labels) + _mean(made[name], given[label].flatten())


def _text_loss(folder: Folder, logits: Tensor, labels: Tensor) -> Tensor | None:
    """A text has a value, a class or several classes: as the config says or, if it does not, as the labels look."""
    guess = ONE if labels.dtype in (torch.long, torch.int) else MANY
    problem = folder.config.get("problem_type") or ("regression" if logits.shape[-1] == 1 else guess)
    if problem == ONE:
        return _mean(logits, labels.flatten())
    labels = labels[:, None] if logits.shape[-1] == 1 and labels.dim() == 1 else labels
    _must_have(labels, logits.shape)
    if problem == "regression":
        return F.mse_loss(logits, labels.to(logits))
    return F.binary_cross_entropy_with_logits(logits, labels.to(logits)) if problem == MANY else None


def _untold(folder: Folder, made: Outputs) -> bool:
    """Whether texts have labels of which the config does not say what they are."""
    asked = "labels" in folder.inputs and "logits" in made and made["logits"].dim() == 2
    return asked and folder.config.get("problem_type") is None


def _blanked_loss(logits: Tensor, labels: Tensor) -> Outputs:
    """DeBERTa's own rules: one logit is a value, and given as such; labels below 0 do not count; shares may be soft."""
    if logits.shape[-1] == 1:
        _must_have(labels.flatten(), logits.shape[:1])
        values = logits.flatten().to(labels.dtype)
        return {"logits": values, "loss": F.mse_loss(values.to(logits), labels.flatten().to(logits)).to(labels.dtype)}
    if labels.dim() == 1 or labels.shape[-1] == 1:
        classes = labels.flatten().long()
        classes = classes.masked_fill(classes < 0, NO_LABEL)
        none = bool((classes == NO_LABEL).all())
        return {"loss": torch.zeros((), dtype=logits.dtype) if none else _mean(logits, classes)}
    _must_have(labels, logits.shape)
    return {"loss": -(logits.log_softmax(-1) * labels).sum(-1).mean()}


def _mean(logits: Tensor, labels: Tensor) -> Tensor:
    _must_have(labels, logits.shape[:-1])
    if labels.is_floating_point():
        raise WeightsError(
            f"labels are {labels.dtype}; needed is the number of a class for each of {list(labels.shape)}"
        )
    return mean_loss(logits, labels.long())


def _must_have(labels: Tensor, shape: torch.Size) -> None:
    if labels.shape != shape:
        raise WeightsError(f"labels have the shape {list(labels.shape)}; needed is {list(shape)}")


def _span_loss(folder: Folder, made: Outputs, equal: Tensor) -> Tensor | None:
    """The mean of both ends, over all columns: where heed's are not theirs, there is none."""
    names = {"start_logits": "start_positions", "end_logits": "end_positions"}
    if not bool(equal.all()) or any(name not in folder.inputs for name in names.values()):
        return None
    tokens = equal.shape[1]
    ends = (
        F.cross_entropy(made[logits], folder.inputs[label].flatten().clamp(0, tokens), ignore_index=tokens)
        for logits, label in names.items()
    )
    return sum(ends, torch.zeros(())) / 2
