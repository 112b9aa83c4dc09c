"""What a Funnel Transformer gives: streams of several lengths. Padding asks and is pooled there like any token."""

from __future__ import annotations

import torch
from torch import Tensor

from ....core.contract import Where
from ....core.errors import InputError, WeightsError
from ....core.state import Seen
from ....models import Funnel
from ....parts.look import look
from ...formats.folder import INPUTS, Folder
from ..inputs import Outputs, Padded, sequence
from .encoder import answered
from .shared import must_read

HIDDEN = -1e6  # what the reference adds to the scores of a hidden key


def outputs(model: Funnel, folder: Folder) -> Outputs:
    """`last_hidden_state`, `hidden_states`, `attentions`, what the heads say, and the loss if labels are given."""
    must_read(folder, "position_ids")
    tokens = sequence(folder, "input_ids")
    _must_pool(model, folder, tokens.shape[1])
    shown = Padded.showing(folder, "attention_mask", tokens).real
    where = Where.run(*tokens.shape).give(segment=_segments(folder, tokens))
    added = None if bool(shown.all()) else HIDDEN * (~shown).to(folder.dtype)
    with look(model.stack) as seen:
        try:
            levels = model.levels(model.embeddings(tokens, where), where, added)
        except InputError as error:
            raise WeightsError(f"{folder.path / INPUTS}: {error}") from None
    made = {f"hidden_states.{depth}": level.x for depth, level in enumerate(levels)}
    made["last_hidden_state"] = levels[-1].x
    looked = {index: iter(seen[f"blocks.{index}.mixer.weights"]) for index in set(model.stack.order)}
    made |= {f"attentions.{depth}": next(looked[index]) for depth, index in enumerate(model.stack.order)}
    last = Seen.of(levels[-1].where, levels[-1].x)
    return answered(model, folder, made, last, Padded.of(torch.ones_like(shown)), shown)


def _segments(folder: Folder, tokens: Tensor) -> Tensor:
    if "token_type_ids" not in folder.inputs:
        return torch.zeros_like(tokens)
    segment = sequence(folder, "token_type_ids")
    if segment.shape != tokens.shape:
        raise WeightsError(
            f"{folder.path / INPUTS}: token_type_ids have the shape {list(segment.shape)}, input_ids "
            f"{list(tokens.shape)}; they must be equal"
        )
    return segment


def _must_pool(model: Funnel, folder: Folder, tokens: int) -> None:
    """Raise if a text is too short for every block: the reference then reads places where no token stands."""
    config, left = model.config, tokens
    for _ in config.sizes[1:]:
        if left <= 1 + int(config.separate):
            raise WeightsError(
                f"{folder.path / INPUTS}: texts of {tokens} tokens are too short to be pooled {len(config.sizes) - 1} "
                "times, where heed and the reference differ; record longer ones"
            )
        left = -(-(left + int(config.separate and not config.truncate)) // 2)
