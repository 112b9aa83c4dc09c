"""What the replays of all shapes share: hidden states and attention weights at every depth, a mean loss."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ....core.contract import Where
from ....core.errors import WeightsError
from ....models.stack import Stack
from ....parts.look import look, points
from ....parts.outputs.loss import NO_LABEL, cross_entropy
from ...formats.folder import INPUTS, Folder
from ..inputs import Outputs, Padded, streams

UNREAD = (  # inputs that would change what a reference gives
    *("inputs_embeds", "decoder_inputs_embeds", "encoder_outputs", "past_key_values", "bool_masked_pos"),
    *("head_mask", "decoder_head_mask", "cross_attn_head_mask", "decoder_position_ids"),
)
BESIDE = {"attention_mask": 0, "token_type_ids": 0, "labels": NO_LABEL}  # what new padding is fed with


@dataclass(frozen=True)
class Depths:
    """Hidden states before the first block and after each, the last after the final norm; and attention weights."""

    streams: list[Tensor]
    weights: list[Tensor]  # [B, H, T, N] of each layer's self-attention
    cross: list[Tensor]  # and of its cross-attention, if it has one

    @classmethod
    def of(cls, stack: Stack, x: Tensor, where: Where) -> Depths:
        """By running the stack layer by layer, and looking."""
        with look(stack) if points(stack) else nullcontext(dict[str, list[Tensor]]()) as seen:
            depths = streams(stack, x, where)
        depths[-1] = stack.ends.leave(depths[-1])

        def shown(part: str) -> list[Tensor]:
            """Block by block; a block that stands at several depths showed its weights once at each."""
            found = {index: iter(seen.get(f"blocks.{index}.{part}.weights", ())) for index in set(stack.order)}
            return [weights for index in stack.order for weights in [next(found[index], None)] if weights is not None]

        return cls(depths, shown("mixer"), shown("cross"))

    def named(self, padded: Padded, keys: Padded | None = None, side: str = "") -> Outputs:
        """Under the names of references, moved back to the columns they came from."""
        made = {f"{side}hidden_states.{depth}": padded.back(x) for depth, x in enumerate(self.streams)}
        made |= {f"{side}attentions.{layer}": padded.pairs_back(w) for layer, w in enumerate(self.weights)}
        return made | {f"cross_attentions.{layer}": padded.pairs_back(w, keys) for layer, w in enumerate(self.cross)}


def must_read(folder: Folder, *unread: str) -> None:
    """Raise if an input would change what a reference gives and is not read here. One may be stored in parts."""
    names = (*UNREAD, *unread)
    strange = sorted(name for name in folder.inputs if name.partition(".")[0].startswith(names))
    if strange:
        raise WeightsError(
            f"{folder.path / INPUTS} holds {', '.join(strange[:3])}, which heed does not feed to such a model; record "
            "what the reference gives without"
        )


def widened(folder: Folder, width: int, pad: int) -> Folder:
    """The same folder with its texts filled up to `width` by hidden padding, as some references begin."""
    tokens = folder.inputs["input_ids"]
    given = {"attention_mask": torch.ones_like(tokens)} | folder.inputs
    fill, more = BESIDE | {"input_ids": pad}, (0, width - tokens.shape[1])
    alike = [name for name in fill if name in given and given[name].shape == tokens.shape]
    return folder.fed(given | {name: F.pad(given[name], more, value=fill[name]) for name in alike})


def mean_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy over real labels."""
    return cross_entropy(logits, labels).total / (labels != NO_LABEL).sum()


def has_loss(folder: Folder, labels: Tensor, real: Tensor) -> bool:
    """Whether every label that counts is predicted from a token. A reference asks padding, too, heed does not.

    Raise if a loss over such labels was recorded. [B, T] both
    """
    lost = bool(((labels != NO_LABEL) & ~real).any())
    if lost and "loss" in (folder.wanted or ()):
        raise WeightsError(
            f"{folder.path / INPUTS}: some labels are predicted from padding, where heed computes nothing; "
            f"labels of {NO_LABEL} are left out of a loss"
        )
    return not lost
