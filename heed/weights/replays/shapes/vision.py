"""What a vision model gives: hidden states and attention weights at every depth, logits, images beside texts (CLIP)."""

from __future__ import annotations

from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from ....core.contract import Where
from ....core.errors import WeightsError
from ....models import ClipModel, ClipTextEncoder, Swin, VisionEncoder
from ....models.multimodal.vision import Distilled
from ....models.stack import Stack
from ....parts.inputs.patches import Grid
from ....parts.outputs.heads import Pooled
from ...formats.folder import INPUTS, Folder
from ..inputs import Outputs, Padded, sequence
from .shared import Depths

Sees: TypeAlias = Swin | ClipTextEncoder | ClipModel | VisionEncoder


def outputs(model: Sees, folder: Folder) -> Outputs:
    """All that one of these gives."""
    match model:
        case ClipModel():
            return compared(model, folder)
        case ClipTextEncoder():
            return read(model, folder)
        case VisionEncoder():
            return seen(model, folder)
        case Swin():
            return staged(model, folder)


def seen(model: VisionEncoder, folder: Folder) -> Outputs:
    """Of a vision encoder (ViT, DeiT, CLIP's): `hidden_states`, `attentions`, `last_hidden_state` and its head."""
    x, where = model.embeddings(pixels(folder))
    made, final = _depths(model.stack, x, where)
    made["last_hidden_state"] = final
    if "distilled" in model.heads:
        head = model.heads["distilled"]
        assert isinstance(head, Distilled)
        made["cls_logits"], made["distillation_logits"] = head.apart(final)
        made["logits"] = head(final, where)
    elif "pooled" in model.heads:
        made |= _asked(model.heads["pooled"], final, where)
    else:
        made["logits"] = final[:, 0]  # a classifier without labels passes on what it was given
    return made | _loss(made, folder)


def staged(model: Swin, folder: Folder) -> Outputs:
    """Of Swin: `hidden_states` and `reshaped_hidden_states` after every stage, the last `attentions` of each."""
    x, where = model.embeddings(pixels(folder))
    made = _plane(0, x, where)
    for index, stage in enumerate(model.levels):
        depths = Depths.of(stage.stack, x, where)
        x, where = stage.leave(depths.streams[-1], where)
        made |= _plane(index + 1, x, where) | {f"attentions.{index}": depths.weights[-1]}
    made["last_hidden_state"] = model.norm(x)
    made |= _asked(model.heads["pooled"], made["last_hidden_state"], where)
    return made | _loss(made, folder)


def read(model: ClipTextEncoder, folder: Folder) -> Outputs:
    """Of CLIP's text encoder: `hidden_states`, `attentions`, `last_hidden_state`, `pooler_output`, `text_embeds`."""
    tokens = sequence(folder, "input_ids")
    padded = Padded.showing(folder, "attention_mask", tokens)
    tokens, where = padded.aligned(tokens), padded.where
    made, final = _depths(model.stack, model.embeddings(tokens, where), where, padded)
    made["last_hidden_state"] = padded.back(final)
    made["pooler_output"] = model.ended(final, tokens, where)
    made["text_embeds"] = model.projected(made["pooler_output"])
    return made


def compared(model: ClipModel, folder: Folder) -> Outputs:
    """Of both encoders: answers as they are (`..._pooled`) and of length one (`..._embeds`), logits, and the loss.

    The loss wants every image to choose its text among all, and every text its image (Radford et al. 2021, fig. 3).
    """
    text, image = read(model.text, folder), seen(model.image, folder)
    made = {
        "text_last_hidden_state": text["last_hidden_state"],
        "vision_last_hidden_state": image["last_hidden_state"],
        "text_pooled": text["text_embeds"],
        "vision_pooled": image["image_embeds"],
        "text_embeds": F.normalize(text["text_embeds"], dim=-1),
        "image_embeds": F.normalize(image["image_embeds"], dim=-1),
    }
    logits = model.scores(made["image_embeds"], made["text_embeds"])
    made |= {"logits_per_image": logits, "logits_per_text": logits.T.contiguous()}
    if logits.shape[0] == logits.shape[1]:
        own = torch.arange(len(logits))
        made["loss"] = (F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own)) / 2
    return made


def pixels(folder: Folder) -> Tensor:
    """The images. [B, C, H, W]"""
    images = folder.input("pixel_values")
    if images.dim() != 4:
        raise WeightsError(
            f"{folder.path / INPUTS}: pixel_values has the shape {list(images.shape)}; needed is "
            "[rows, channels, height, width]"
        )
    return images


def _depths(stack: Stack, x: Tensor, where: Where, padded: Padded | None = None) -> tuple[Outputs, Tensor]:
    """Streams and weights under their names, the last stream as it is before the final norm; and after it."""
    padded = Padded.of(where.real) if padded is None else padded
    depths = Depths.of(stack, x, where)
    before = stack.layers[-1](depths.streams[-2], where)[0]
    named = depths.named(padded) | {f"hidden_states.{len(depths.streams) - 1}": padded.back(before)}
    return named, depths.streams[-1]


def _asked(head: torch.nn.Module, stream: Tensor, where: Where) -> Outputs:
    """What a pooled head says: `pooler_output`, and logits or, where it has a norm (CLIP), `image_embeds`."""
    assert isinstance(head, Pooled)
    answer = "logits" if head.norm is None else "image_embeds"
    return {"pooler_output": head.vector(stream, where), answer: head(stream, where)}


def _plane(index: int, x: Tensor, where: Grid) -> Outputs:
    """A stream, and the same as a picture. [B, T, D], [B, D, height, width]"""
    picture = x.mT.reshape(*x.mT.shape[:2], where.height, where.width)
    return {f"hidden_states.{index}": x, f"reshaped_hidden_states.{index}": picture}


def _loss(made: Outputs, folder: Folder) -> Outputs:
    """The loss of a classifier, where labels are given."""
    if "labels" not in folder.inputs or "logits" not in made:
        return {}
    labels, logits = folder.input("labels"), made["logits"]
    if logits.shape[1] == 1:
        return {"loss": F.mse_loss(logits.squeeze(), labels.squeeze().to(logits.dtype))}
    if labels.is_floating_point():
        return {"loss": F.binary_cross_entropy_with_logits(logits, labels)}
    return {"loss": F.cross_entropy(logits, labels.flatten())}
