"""Greedy decoding as references record it: the generated ids and the logits of every step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...core.contract import NOTHING, Given, Mixer, Where
from ...core.errors import WeightsError
from ..formats.folder import INPUTS, OUTPUTS, Folder
from .inputs import Outputs

CONTINUED = ("sequences", "step_logits")  # the ends of names of what a continuation gives
STEPS = 10  # tokens to generate where no output says how many


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
    """The generated ids and the logits of every step, under the names that the folder has for them, if it has any."""
    stem, steps = generated(folder, tokens.shape[1])
    if folder.wanted is None or not steps:
        return {}
    prompt = _prompt(folder, tokens, stem, steps)
    written, logits = greedy(model, prompt, Where.run(*prompt.shape), steps)
    return {f"{stem}sequences": torch.cat((prompt, written), 1), f"{stem}step_logits": logits}


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


def is_called(folder: Folder) -> bool:
    """Whether anything is wanted of one call, beside what a continuation gives."""
    return folder.wanted is None or not all(name.endswith(CONTINUED) for name in folder.wanted)


def generated(folder: Folder, prompt: int) -> tuple[str, int]:
    """How the names of what the reference generated begin, and how many tokens it generated after such a prompt."""
    wanted = folder.wanted
    if wanted is None:
        return "", STEPS
    for stem in ("", "generate."):
        if f"{stem}step_logits" in wanted:
            return stem, folder.extra(f"{stem}step_logits").shape[1]
        if f"{stem}sequences" in wanted:
            return stem, folder.extra(f"{stem}sequences").shape[1] - prompt
    return "", 0


def greedy(
    model: Mixer[Any], tokens: Tensor, where: Where, steps: int, given: Given = NOTHING
) -> tuple[Tensor, Tensor]:
    """Greedy decoding, one token per call: the new tokens, and the logits of every step."""
    rows, lengths = tokens.shape[0], where.real.sum(1)
    order, position = (stamp.gather(1, (lengths - 1)[:, None]) + 1 for stamp in (where.order, where.position))
    logits, state = model(tokens, where.beside(given), model.start(rows, given))
    picked = logits[torch.arange(rows), lengths - 1]
    written, found = list[Tensor](), list[Tensor]()
    for step in range(steps):
        written.append(picked.argmax(-1))
        found.append(picked)
        if step + 1 < steps:
            here = Where(order + step, position + step).beside(given)
            logits, state = model(written[-1][:, None], here, state)
            picked = logits[:, -1]
    return torch.stack(written, 1), torch.stack(found, 1)
