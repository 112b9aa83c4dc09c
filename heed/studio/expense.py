"""What a model costs as its texts grow: state and operations by its configuration, and states that were really held."""

from __future__ import annotations

from typing import Any

import torch

from ..core.contract import Where
from ..core.errors import InputError
from ..core.interfaces import Encodes, LanguageModel
from ..core.state import nbytes
from ..models import Shape
from ..pipelines import Pipeline
from ..views import cost
from ..views.subject import Subject

LENGTHS = (64, 256, 1024, 4096, 16_384, 65_536)
MEASURED = (16, 64, 256, 1024)  # tokens of the states that are made, to be weighed


def expense(pipeline: Pipeline) -> dict[str, Any]:
    """Of the model as it is, and of other mixers in its place."""
    config = pipeline.config
    if not isinstance(config, Shape):
        raise InputError(f"{type(pipeline.model).__name__} has a configuration that no cost is told of")
    return {
        **cost(Subject(pipeline.family or type(pipeline.model).__name__, config), lengths=LENGTHS).plain(),
        "measured": measured(pipeline),
    }


@torch.no_grad()
def measured(pipeline: Pipeline) -> list[tuple[int, int]]:
    """Tokens, and the bytes of a state that has read them. None of a model that keeps none."""
    model = pipeline.model
    if not isinstance(model, LanguageModel) or isinstance(model, Encodes) or not model.streams:
        return []
    found = []
    for tokens in MEASURED:
        if model.longest is not None and tokens > model.longest:
            break
        ids = torch.arange(tokens, device=model.device)[None] % model.vocabulary
        _, state = model(ids, Where.run(1, tokens, device=model.device), model.start(1))
        found.append((tokens, nbytes(state)))
    return found
