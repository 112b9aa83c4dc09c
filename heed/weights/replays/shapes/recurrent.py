"""What a language model with a state of fixed size gives (RWKV, Mamba): logits, hidden states, and that state."""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from ....core.contract import Where
from ....core.errors import WeightsError
from ....core.state import Cell
from ....models import Decoder
from ....models.block import States
from ....parts.outputs.loss import NO_LABEL
from ...families.mamba import Mamba
from ...families.rwkv import Rwkv
from ...formats.folder import INPUTS, Folder
from ..greedy import generated, greedy, is_called
from ..inputs import Outputs, Padded, sequence, streams
from .shared import has_loss, mean_loss, must_read

FIRST = "split_state_after_first"  # what is remembered after the first of two calls


def outputs(model: Decoder, family: Rwkv | Mamba, folder: Folder) -> Outputs:
    """`logits`, `last_hidden_state`, `hidden_states`, `loss`; `sequences` and `step_logits` of a greedy continuation.

    Streams are those after each block; the reference does not count the embeddings among them. Of RWKV also what it
    remembers, `state`; logits token by token, `recurrent_logits`; and of two calls, `split_logits`, with what is
    remembered between them. The reference shows RWKV all tokens, whatever a mask says.
    """
    must_read(folder, "position_ids", "token_type_ids", "state", "cache_params")
    tokens = sequence(folder, "input_ids")
    padded = (
        Padded.of(torch.ones(tokens.shape, dtype=torch.bool)) if isinstance(family, Rwkv) else _shown(family, folder)
    )
    made = _scored(model, folder, tokens, padded) if is_called(folder) else {}
    if isinstance(family, Rwkv) and is_called(folder):
        made |= _remembered(model, folder, tokens)
    stem, steps = generated(folder, tokens.shape[1])
    if steps:
        written, made[f"{stem}step_logits"] = greedy(model, padded.aligned(tokens), padded.where, steps)
        made[f"{stem}sequences"] = torch.cat((tokens, written), 1)
    return made


def _shown(family: Mamba, folder: Folder) -> Padded:
    """Tokens that a mask shows. Hidden ones before them leave no trace, if their input is zeros: Mamba has them so."""
    padded = Padded.showing(folder, "attention_mask", sequence(folder, "input_ids"))
    begun = padded.real.cummax(1).values
    inside = bool((begun & ~padded.real & padded.real.flip(1).cummax(1).values.flip(1)).any())
    if inside or (family.use_bias and not bool(begun[:, 0].all())):
        raise WeightsError(
            f"{folder.path / INPUTS}: attention_mask hides tokens {'between others' if inside else 'before others'}, "
            "which the reference lets into its memory all the same; hide only those at the end of a row"
        )
    return padded


def _scored(model: Decoder, folder: Folder, tokens: Tensor, padded: Padded) -> Outputs:
    """All that one call tells."""
    x = model.embeddings(padded.aligned(tokens), padded.where)
    after = streams(model.stack, x, padded.where)[1:]
    last = model.stack.ends.leave(after[-1])
    made = {f"hidden_states.{depth}": padded.back(stream) for depth, stream in enumerate((*after, last))}
    made["last_hidden_state"] = padded.back(last)
    made["logits"] = padded.back(model.head(last))
    if "labels" in folder.inputs:
        labels = F.pad(sequence(folder, "labels")[:, 1:], (0, 1), value=NO_LABEL)
        if has_loss(folder, labels, padded.real):
            made["loss"] = mean_loss(made["logits"], labels)
    return made


def _remembered(model: Decoder, folder: Folder, tokens: Tensor) -> Outputs:
    """The same text in one call, token by token, and in two calls."""
    length = tokens.shape[1]
    cut = _cut(model, folder, tokens)
    made: Outputs = {}
    for name, sizes in {"": [length], "recurrent": [1] * length, "split": [cut, length - cut]}.items():
        logits, states = _cut_up(model, tokens, [size for size in sizes if size])
        if name:
            made[f"{name}_logits"] = logits
        shown = {"": ("state", -1), "split": (FIRST, 0)}.get(name)
        if shown is not None:
            made |= {f"{shown[0]}.{part}": tensor for part, tensor in enumerate(states[shown[1]])}
    return made


def _cut_up(model: Decoder, tokens: Tensor, sizes: list[int]) -> tuple[Tensor, list[list[Tensor]]]:
    """Scores of calls of these sizes, and what is remembered after each, under the reference's numbers."""
    state, begin, logits, states = model.start(len(tokens)), 0, list[Tensor](), list[list[Tensor]]()
    for size in sizes:
        where = Where.run(len(tokens), size, start=begin)
        y, after = model(tokens[:, begin : begin + size], where, state)
        state, begin = cast(States, after), begin + size
        logits.append(y)
        states.append(_state(state))
    return torch.cat(logits, 1), states


def _state(state: States) -> list[Tensor]:
    """The last token of the channel mixing and of the time mixing, both sums, and their level. [B, D, layers] each"""
    layers = []
    for block in state:
        (last, sums, level), channel = cast("tuple[tuple[Cell, Cell, Cell], Cell]", block)
        layers.append([*channel.tensors(), *last.tensors(), *sums.tensors(), *level.tensors()])
    return [torch.stack(parts, -1) for parts in zip(*layers, strict=True)]


def _cut(model: Decoder, folder: Folder, tokens: Tensor) -> int:
    """Where the reference cut a text in two. That is not recorded, but what its first layer remembers of it is: the
    token before the cut.
    """
    length, name = tokens.shape[1], f"{FIRST}.1"
    if folder.wanted is None or name not in folder.wanted:
        return length // 2
    where = Where.run(*tokens.shape)
    seen = model.stack.layers[0].wiring.norms[0](model.embeddings(tokens, where))  # [B, T, D]
    recorded = folder.extra(name)[..., 0]
    if recorded.shape != seen[:, 0].shape:
        raise WeightsError(
            f"{folder.path}: {name} is of the shape {list(folder.extra(name).shape)}; needed are rows, channels, layers"
        )
    return int((seen - recorded.unsqueeze(1)).abs().amax((0, 2)).argmin()) + 1
