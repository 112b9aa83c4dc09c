"""What may come next: candidates, how sure the model is, and what a token that stands there was worth to it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..core.errors import InputError
from ..pipelines import Pipeline
from ..pipelines.checkpoint import Bare

CANDIDATES = 12


def following(pipeline: Pipeline, logits: Tensor, ids: tuple[int, ...], place: int) -> dict[str, Any]:
    """After the token at `place`: the most probable tokens, the entropy, and the rank of what really stands there."""
    if not 0 <= place < len(ids):
        raise InputError(f"there is no token {place}; the text has {len(ids)}")
    logs = torch.log_softmax(logits[place].double(), -1)
    top = logs.topk(min(CANDIDATES, logs.numel()))
    entropy = -(logs.exp() * logs.where(logs.isfinite(), 0.0)).sum()
    found: dict[str, Any] = {
        "place": place,
        "entropy": float(entropy) / torch.log(torch.tensor(2.0)).item(),
        "most": float(torch.log2(torch.tensor(float(logs.numel())))),
        "candidates": [
            {"id": index, "text": shown(pipeline, index), "p": float(torch.tensor(log).exp()), "log": log}
            for index, log in zip(top.indices.tolist(), top.values.tolist(), strict=True)
        ],
    }
    if place + 1 < len(ids):
        actual = float(logs[ids[place + 1]])
        rank = int((logs > actual).sum()) + 1
        found["actual"] = {"id": ids[place + 1], "text": shown(pipeline, ids[place + 1]), "log": actual, "rank": rank}
    return found


def shown(pipeline: Pipeline, index: int) -> str:
    """A token as people read it."""
    if isinstance(pipeline, Bare) or index >= pipeline.tokenizer.size:
        return str(index)
    return pipeline.tokenizer.tokens([index])[0]
