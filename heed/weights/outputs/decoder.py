"""What a language model gives: scores at every token, streams and weights at every depth, a greedy continuation."""

from __future__ import annotations

import torch

from ...models import Decoder
from ...parts.loss import NO_LABEL
from ..family import Family
from ..feed import Outputs, Padded, sequence
from ..folder import Folder
from .shared import Depths, greedy, mean_loss, steps_wanted


def outputs(model: Decoder, family: Family, folder: Folder) -> Outputs:
    """`logits`, `hidden_states`, `attentions`, `loss`; `sequences` and `step_logits` of a greedy continuation."""
    tokens = sequence(folder, "input_ids")
    made: Outputs = {}
    if folder.wants("logits"):
        padded = Padded.showing(folder, "attention_mask", tokens, family.places)
        depths = Depths.of(model.stack, model.front(padded.front(tokens), padded.where), padded.where)
        made |= depths.named(padded)
        stream = depths.streams[-1]
        made["logits"] = padded.back(model.head(stream if model.narrow is None else model.narrow(stream)))
    if "logits" in made and "labels" in folder.inputs:
        labels = torch.nn.functional.pad(sequence(folder, "labels")[:, 1:], (0, 1), value=NO_LABEL)
        made["loss"] = mean_loss(made["logits"], labels)
    steps = steps_wanted(folder, "step_logits")
    if steps:
        ranked = Padded.showing(folder, "attention_mask", tokens, "ranks")  # generation always counts real tokens
        written, made["step_logits"] = greedy(model, ranked.front(tokens), ranked.where, steps)
        made["sequences"] = torch.cat((tokens, written), 1)
    return made
