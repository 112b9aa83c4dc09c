"""A greedy continuation that was recorded from the first tokens of a text on, however many those were."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...core.contract import Mixer, Where
from ...core.errors import WeightsError
from ..formats.folder import INPUTS, OUTPUTS, Folder
from .inputs import Outputs
from .shapes.shared import generated, greedy


def ids(folder: Folder, name: str) -> Tensor:
    """An input that must be token ids, [rows, tokens], at least one of each."""
    tokens = folder.input(name)
    if tokens.dim() != 2 or not tokens.numel() or tokens.is_floating_point():
        raise WeightsError(
            f"{folder.path / INPUTS}: {name} must be ids of at least one token, in at least one row; given is "
            f"{tokens.dtype} of shape {list(tokens.shape)}"
        )
    return tokens


def continued(folder: Folder, model: Mixer[Any], tokens: Tensor) -> Outputs:
    """The likeliest tokens and their scores, under the names that the folder has for them, if it has any."""
    stem, steps = generated(folder, tokens.shape[1])
    if folder.wanted is None or not steps:
        return {}
    prompt = _prompt(folder, tokens, stem, steps)
    written, scores = greedy(model, prompt, Where.run(*prompt.shape), steps)
    return {f"{stem}sequences": torch.cat((prompt, written), 1), f"{stem}step_logits": scores}


def _prompt(folder: Folder, tokens: Tensor, stem: str, steps: int) -> Tensor:
    """The first tokens: as many as the recorded sequence has before what was generated."""
    name = f"{stem}sequences"
    length = folder.extra(name).shape[1] - steps if folder.wants(name) else tokens.shape[1]
    if 0 < length <= tokens.shape[1]:
        return tokens[:, :length]
    raise WeightsError(
        f"{folder.path / OUTPUTS}: {name} with {steps} generated tokens has a prompt of {length}; "
        f"needed is one of 1 to {tokens.shape[1]} tokens, the first that were fed"
    )
