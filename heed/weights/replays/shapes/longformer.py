"""What a Longformer gives: what any encoder gives, but its weights in bands, as its reference holds them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ....core.errors import WeightsError
from ....models import Encoder
from ...families.longformer import Longformer, marks_first
from ...formats.folder import INPUTS, Folder
from ..inputs import Outputs, Padded, sequence
from . import encoder

GLOBALS = "global_attention_mask"
SEPARATORS = 3  # of a question and a text


def outputs(model: Encoder, family: Longformer, folder: Folder) -> Outputs:
    """All that an encoder gives, and `global_attentions` where tokens are marked: what these look at."""
    tokens = sequence(folder, "input_ids")
    shown = Padded.showing(folder, "attention_mask", tokens).real
    marked = _marked(family, folder, tokens) & shown
    made = encoder.outputs(model, family, folder, marked)
    for layer, window in enumerate(family.windows):
        weights = made[f"attentions.{layer}"]
        made[f"attentions.{layer}"] = _banded(weights, marked, window)
        if bool(marked.any()):
            made[f"global_attentions.{layer}"] = _global(weights, marked, max(family.windows))
    return made


def _marked(family: Longformer, folder: Folder, tokens: Tensor) -> Tensor:
    """Which tokens have global attention: those that the inputs name or, if none, those that the head marks. [B, T]

    A token is marked where its mask, times one more than its global mask, is 2.
    """
    mask = folder.inputs.get("attention_mask", torch.ones_like(tokens))
    if GLOBALS in folder.inputs:
        named = sequence(folder, GLOBALS)
        if named.shape != tokens.shape:
            raise WeightsError(
                f"{folder.path / INPUTS}: {GLOBALS} has the shape {list(named.shape)} beside ids of "
                f"{list(tokens.shape)}; needed is a 0 or 1 for each id"
            )
    elif marks_first(folder.weights):
        named = torch.zeros_like(tokens)
        named[:, 0] = 1
    elif "qa_outputs.weight" in folder.weights:
        named = _question(family, folder, tokens)
    else:
        named = torch.zeros_like(tokens)
    return mask * (named + 1) == 2


def _question(family: Longformer, folder: Folder, tokens: Tensor) -> Tensor:
    """1 at all that stands before the first separator. [B, T]"""
    ends = tokens.eq(-1 if family.sep_token_id is None else family.sep_token_id)
    if not bool((ends.sum(1) == SEPARATORS).all()):
        raise WeightsError(
            f"{folder.path / INPUTS}: where a question ends is told by {SEPARATORS} tokens {family.sep_token_id} in "
            f"every row, but rows have {ends.sum(1).tolist()}; give {GLOBALS} instead"
        )
    return (ends.cumsum(1) == 0).long()


def _banded(weights: Tensor, marked: Tensor, window: int) -> Tensor:
    """Of every token, its weights of the marked tokens, then of its window, which holds none of these.

    A marked token has zeros here. [B, H, T, T] -> [B, H, T, g + window + 1]
    """
    rows, heads, tokens, _ = weights.shape
    near = weights.masked_fill(marked[:, None, None], 0)
    near = F.pad(near, (window // 2, window // 2))  # column i + c is token i + c - window / 2
    place = torch.arange(tokens)[:, None] + torch.arange(window + 1)
    near = near.gather(3, place.expand(rows, heads, -1, -1))
    column, there = _columns(marked)
    far = weights.take_along_dim(column[:, None, None], 3).masked_fill(~there[:, None, None], 0)
    return torch.cat((far, near), -1).masked_fill(marked[:, None, :, None], 0)


def _global(weights: Tensor, marked: Tensor, longest: int) -> Tensor:
    """What the marked tokens of a row look at, filled up to whole windows. [B, H, T, T] -> [B, H, T', g]

    A row with fewer of them than another has marked tokens that look at everything alike.
    """
    tokens = weights.shape[2]
    whole = -(-tokens // longest) * longest
    column, there = _columns(marked)
    asked = F.pad(weights.take_along_dim(column[:, None, :, None], 2), (0, whole - tokens))
    return asked.masked_fill(~there[:, None, :, None], 1 / whole).transpose(2, 3)


def _columns(marked: Tensor) -> tuple[Tensor, Tensor]:
    """Where the marked tokens of every row stand, and which of these there are: some rows have fewer. [B, g] both"""
    counts = marked.sum(1)
    column = (~marked).byte().argsort(dim=1, stable=True)[:, : int(counts.max())]
    return column, torch.arange(column.shape[1]) < counts[:, None]
