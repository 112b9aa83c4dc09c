"""A model called with ids and masks as Hugging Face's models are, and with results that are named as theirs.

Their masks say which columns of a batch hold tokens; heed's stamps say which token each column holds. So a mask becomes
stamps: tokens move to the front of their row, are counted, and what comes out moves back. Padding on the left gives
what `transformers` gives when it is told the right `position_ids`; padding itself gives zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from .. import engine
from ..core.contract import Where
from ..core.errors import InputError
from ..core.foreign_names import refuse_unknown
from ..core.interfaces import Asked, Encodes, LanguageModel, Sees
from ..core.state import Seen
from ..models import AudioEncoder, Seq2seq
from ..parts.inputs.padding import Aligned
from ..parts.outputs.heads import Pooled
from ..parts.outputs.loss import NO_LABEL
from .base import AnyModel
from .streams import fields_of, stream_of

PIXELS, BOXES = "pixel_values", "bbox"
NAMES = (
    *("input_ids", "attention_mask", "token_type_ids", "decoder_input_ids", "decoder_attention_mask", "labels"),
    *(PIXELS, BOXES),
)


BOX = 4  # numbers that tell where on a page a token stands


class ModelOutput(Mapping[str, Tensor]):
    """What a model gave, by name: `out.logits`, `out["logits"]`; `out[0]` is the first, `out.to_tuple()` is all."""

    def __init__(self, **tensors: Tensor | None) -> None:
        self._tensors = {name: tensor for name, tensor in tensors.items() if tensor is not None}

    def __getattr__(self, name: str) -> Tensor:
        if name.startswith("_") or name not in self._tensors:
            raise AttributeError(f"this result has no {name}; it has {', '.join(self.__dict__.get('_tensors', ()))}")
        return self._tensors[name]

    def __getitem__(self, name: str | int) -> Tensor:
        if isinstance(name, int):
            return self.to_tuple()[name]
        if name not in self._tensors:
            raise KeyError(f"this result has no {name}; it has {', '.join(self._tensors)}")
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def to_tuple(self) -> tuple[Tensor, ...]:
        """All tensors, in their order."""
        return tuple(self._tensors.values())

    def __repr__(self) -> str:
        shapes = (f"{name} {list(tensor.shape)}" for name, tensor in self._tensors.items())
        return f"ModelOutput({', '.join(shapes)})"


@dataclass(frozen=True)
class Rows:
    """Ids whose tokens stand at the front of their rows, and the way back to where they stood."""

    ids: Tensor  # [B, T]
    aligned: Aligned
    mask: Tensor  # [B, T] True for tokens, as they were given

    @classmethod
    def of(cls, ids: Tensor, mask: Tensor | None) -> Rows:
        mask = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
        aligned = Aligned.of(mask)
        return cls(aligned.align(ids), aligned, mask)

    @property
    def where(self) -> Where:
        """Which tokens these are."""
        return self.aligned.where

    def back(self, y: Tensor) -> Tensor:
        """Outputs in the places that the tokens had, zero at padding. [B, T, ...]"""
        return self.aligned.restore(self.where.blank(y))


@dataclass(frozen=True)
class Inputs:
    """What a call gives: tensors, ragged lists padded; by the names that Hugging Face's models have for them."""

    tensors: Mapping[str, Tensor]

    @classmethod
    def of(cls, given: Mapping[str, Any], encode: Callable[[list[str]], Mapping[str, Any]]) -> Inputs:
        """From keywords; the first of them may be a mapping of them all, or texts."""
        refuse_unknown("a model's call", given, NAMES)
        told = {name: value for name, value in given.items() if value is not None}
        first = told.get("input_ids")
        if isinstance(first, str):
            first = [first]
        if isinstance(first, list) and first and isinstance(first[0], str):
            first = encode(first)
        if isinstance(first, Mapping):
            refuse_unknown("a model's call", first, NAMES)
            told = {**first, **{name: value for name, value in told.items() if name != "input_ids"}}
        tensors = dict[str, Tensor]()
        for name, value in told.items():
            tensors[name], mask = _tensor(name, value)
            if mask is not None and name in {"input_ids", "decoder_input_ids"}:
                told_mask = name.replace("input_ids", "attention_mask")
                if told_mask in told:
                    raise InputError(f"{name} are lists of different lengths, so {told_mask} is known; leave it out")
                tensors[told_mask] = mask
        return cls(tensors)

    def get(self, name: str, device: torch.device | None) -> Tensor | None:
        """One of them, where the model is."""
        tensor = self.tensors.get(name)
        return None if tensor is None else tensor.to(device)

    def rows(self, name: str, device: torch.device | None) -> Rows | None:
        """Ids and the mask beside them."""
        ids = self.get(name, device)
        if ids is None:
            return None
        ids = ids[None] if ids.dim() == 1 else ids
        if ids.is_floating_point() or ids.dtype == torch.bool or ids.dim() != 2:
            raise InputError(f"{name} must be integer ids of shape [rows, tokens], not {_worded(ids)}")
        return Rows.of(ids.long(), _mask(self.get(name.replace("input_ids", "attention_mask"), device), ids))

    def must_not_hold(self, *names: str) -> None:
        """Raise if something was given that this model has no use for."""
        for name in names:
            if name in self.tensors:
                raise InputError(f"this model takes no {name}; leave it out")


def output_of(model: AnyModel, inputs: Inputs, what: str) -> ModelOutput:
    """What a model of any kind makes of its inputs. Gradients are as the caller has them."""
    if isinstance(model, Sees):
        return _seen(model, inputs)
    if isinstance(model, Seq2seq) and not isinstance(model.encoder, AudioEncoder):
        return _translated(model, inputs)
    if isinstance(model, LanguageModel) and not isinstance(model, Encodes):
        asked = isinstance(model, Asked) and len(model.heads) > 0
        return _encoded(model, inputs) if asked else _continued(model, inputs)
    if isinstance(model, Encodes) and not isinstance(model, AudioEncoder | LanguageModel):
        return _encoded(model, inputs)
    raise InputError(f"ids cannot be given to this model: it is {what}; call its .model with tensors and stamps")


def _continued(model: AnyModel, inputs: Inputs) -> ModelOutput:
    """A language model: logits of the token after each token."""
    inputs.must_not_hold("decoder_input_ids", "decoder_attention_mask", PIXELS)
    rows = _needed(inputs.rows("input_ids", model.device))
    logits = rows.back(engine.compile(model)(rows.ids, rows.where)[0])
    labels = _labels(inputs, rows)
    if labels is not None:  # a token is asked for the next one
        return ModelOutput(loss=_entropy(logits[:, :-1], labels[:, 1:]), logits=logits)
    return ModelOutput(logits=logits)


def _translated(model: Seq2seq, inputs: Inputs) -> ModelOutput:
    """An encoder-decoder: logits of the target token after each target token."""
    inputs.must_not_hold(PIXELS)
    source = _needed(inputs.rows("input_ids", model.device))
    target = inputs.rows("decoder_input_ids", model.device)
    if target is None:
        raise InputError(
            "an encoder-decoder is called with a source and with what is known of its target: m(input_ids, "
            "decoder_input_ids=...); to generate the target, use m.generate(text)"
        )
    compiled = engine.compile(model)
    output = compiled.encode(source.ids, source.where)
    logits = target.back(compiled(target.ids, target.where.give(encoder_output=output))[0])
    labels = _labels(inputs, target)
    return ModelOutput(
        loss=None if labels is None else _entropy(logits, labels),
        logits=logits,
        encoder_last_hidden_state=source.back(output.parts[0]),
    )


def _encoded(model: AnyModel, inputs: Inputs) -> ModelOutput:
    """An encoder, or a decoder that is asked about a text: its hidden states, and what its heads make of them."""
    inputs.must_not_hold("decoder_input_ids", "decoder_attention_mask", PIXELS)
    device = next(model.parameters()).device
    rows = _needed(inputs.rows("input_ids", device))
    segments, boxes = inputs.get("token_type_ids", device), inputs.get(BOXES, device)
    ids, fields = rows.ids, fields_of(model)
    if (boxes is not None) != (fields > BOX):
        raise InputError(
            "this model reads no boxes; leave bbox out"
            if boxes is not None
            else "this model reads tokens with their boxes on a page: give bbox of shape [rows, tokens, 4], left, top, "
            "right and bottom from 0 to 1000; words with boxes go to m.tag((words, boxes)), m.classify, m.embed"
        )
    if fields > 1 and (segments is not None or boxes is not None):  # a tokenizer may tell what a model does not ask
        segments = torch.zeros_like(ids) if segments is None else segments.reshape(ids.shape).long()
        ids = torch.stack((ids, rows.aligned.align(segments)), -1)[..., : fields - BOX * (boxes is not None)]
    if boxes is not None:
        if boxes.shape[-1] != BOX or boxes.is_floating_point():
            raise InputError(f"bbox must be integers of shape [rows, tokens, 4], not {_worded(boxes)}")
        boxes = boxes[None] if boxes.dim() == 2 else boxes
        ids = torch.cat((ids, rows.aligned.align(boxes.long())), -1)
    seen = stream_of(engine.compile(model), ids, rows.where)
    return _headed(model, seen, rows.back, inputs.get("labels", device))


def _seen(model: Sees, inputs: Inputs) -> ModelOutput:
    """An image encoder: hidden states of patches, and what its heads make of them."""
    assert isinstance(model, torch.nn.Module)
    weight = next(model.parameters())
    images = inputs.get(PIXELS, weight.device)
    images = inputs.get("input_ids", weight.device) if images is None else images
    if images is None or images.dim() != 4:
        raise InputError("an image encoder is called with pixel_values of shape [images, channels, height, width]")
    seen = engine.compile(model).see(images.to(weight.dtype))
    return _headed(model, seen, lambda y: y, inputs.get("labels", weight.device))


def _headed(model: object, seen: Seen, back: Callable[[Tensor], Tensor], labels: Tensor | None) -> ModelOutput:
    """Hidden states, with the outputs of all heads there are."""
    hidden, found = seen.parts[0], dict[str, Tensor]()
    heads = dict(model.heads.items()) if isinstance(model, Asked) else {}
    for kind, head in heads.items():
        made = head(hidden, seen)
        if kind == "spans":
            found["start_logits"], found["end_logits"] = back(made).unbind(-1)
        elif kind != "pooled":
            found["logits"] = made if kind == "distilled" else back(made)
        elif isinstance(head, Pooled) and head.scores is None:
            found["pooler_output"] = made
        else:
            found["seq_relationship_logits" if "masked" in heads else "logits"] = made
    loss = None if labels is None else _head_loss(found.get("logits"), labels)
    return ModelOutput(loss=loss, **found, last_hidden_state=back(hidden))


# --- losses ---


def _labels(inputs: Inputs, rows: Rows) -> Tensor | None:
    """Labels as they were given, none at padding."""
    labels = inputs.get("labels", rows.ids.device)
    if labels is None:
        return None
    labels = labels[None] if labels.dim() == 1 else labels
    if labels.shape != rows.ids.shape:
        raise InputError(f"labels must be one for each token, {list(rows.ids.shape)}, not {_worded(labels)}")
    return labels.masked_fill(~rows.mask, NO_LABEL)


def _entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy of real labels."""
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=NO_LABEL)


def _head_loss(logits: Tensor | None, labels: Tensor) -> Tensor:
    """As the labels say: of classes or tokens (integers), of several classes (floats), of a value (one logit)."""
    if logits is None:
        raise InputError("this model has no head that labels could be compared with; leave labels out")
    if logits.shape[-1] == 1 and logits.dim() == 2:
        return F.mse_loss(logits[:, 0], labels.reshape(-1).to(logits))
    if labels.is_floating_point():
        return F.binary_cross_entropy_with_logits(logits, labels.to(logits))
    return _entropy(logits, labels)


# --- what is given ---


def _needed(rows: Rows | None) -> Rows:
    if rows is None:
        raise InputError('this model is called with ids: m(input_ids), m(**m.tokenizer("...", return_tensors="pt"))')
    return rows


def _tensor(name: str, value: Any) -> tuple[Tensor, Tensor | None]:
    """A tensor of what was given; of lists of different lengths, with the mask of what is not padding."""
    if isinstance(value, Tensor):
        return value, None
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value), None
    try:
        rows = [row.tolist() if isinstance(row, Tensor | np.ndarray) else row for row in value]
        if rows and all(isinstance(row, list | tuple) for row in rows) and len({len(row) for row in rows}) > 1:
            width = max(map(len, rows))
            padded = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
            return padded, torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
        return torch.tensor(rows), None
    except (TypeError, ValueError, RuntimeError):
        kind = type(value).__name__
        raise InputError(f"{name} must be a tensor, a list of numbers or a list of such lists, not {kind}") from None


def _mask(mask: Tensor | None, ids: Tensor) -> Tensor | None:
    """True for tokens; 1 and 0 is how it is given."""
    if mask is None:
        return None
    mask = mask[None] if mask.dim() == 1 else mask
    if mask.shape != ids.shape or not bool(((mask == 0) | (mask == 1)).all()):
        raise InputError(
            f"attention_mask must be 1 for tokens and 0 for padding, of shape {list(ids.shape)} like the ids; this one "
            f"is {_worded(mask)}. Which token sees which is a matter of the model's mask (heed.parts.masks)"
        )
    return mask.bool()


def _worded(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {list(tensor.shape)}"
