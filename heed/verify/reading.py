"""Proofs on a run that generates nothing: what its heads say of a text depends on nothing but the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import engine
from ..core.cases import distance
from ..core.contract import Mixer, Where
from ..core.interfaces import Asked
from ..core.laws import BOUND, Finding
from ..pipelines.base import Ids, Padded
from ..pipelines.streams import stream_of

SINGLE = 1e-4  # of float32, in which kernels compute
STRANGE = -100  # an id that does not exist, in the padding
WIDER = 5  # tokens of padding more than there need be


def batched(model: Mixer[Any], rows: Sequence[Ids]) -> list[Finding]:
    """Texts together, padded to the longest of them, against each alone."""
    together = _answers(model, rows)
    return [
        Finding("batch", distance(_answers(model, [row])[0], found), BOUND, f"a text of {len(row)} tokens")
        for row, found in zip(rows, together, strict=True)
    ]


def padded(model: Mixer[Any], rows: Sequence[Ids]) -> list[Finding]:
    """The same with ids that do not exist in a wider padding."""
    found = []
    for row in rows:
        wider = np.concatenate([row, np.full_like(row, STRANGE, shape=(WIDER, row.shape[1]))])
        tokens, where = torch.from_numpy(wider[None]).long(), Where.ragged([len(row)], width=len(wider))
        error = distance(_answers(model, [row])[0], _asked(model, tokens, where, [len(row)])[0])
        found.append(Finding("padded", error, BOUND, f"a text of {len(row)} tokens, and {WIDER} of padding"))
    return found


def compiled(model: Mixer[Any], rows: Sequence[Ids]) -> list[Finding]:
    """In float32, as a model is used: compiled against plain calls."""
    plain, fast = _answers(model, rows), _answers(engine.compile(model), rows)
    return [
        Finding("compiled", distance(one, other), SINGLE, f"a text of {len(row)} tokens")
        for row, one, other in zip(rows, plain, fast, strict=True)
    ]


def _answers(model: Mixer[Any], rows: Sequence[Ids]) -> list[Tensor]:
    side_by_side = Padded.of(rows)
    return _asked(model, side_by_side.tokens, side_by_side.where, [len(row) for row in rows])


@torch.no_grad()
def _asked(model: Mixer[Any], tokens: Tensor, where: Where, lengths: Sequence[int]) -> list[Tensor]:
    """What all heads say of each text, its padding left out; without heads, its hidden states."""
    seen = stream_of(model, tokens, where)
    heads = list(model.heads.values()) if isinstance(model, Asked) else []
    said = [head(seen.parts[0], seen) for head in heads] or [seen.parts[0]]
    return [torch.cat([_of(row, length, one) for one in said]) for row, length in enumerate(lengths)]


def _of(row: int, length: int, said: Tensor) -> Tensor:
    """What is said of a text as a whole, [B, classes], or of each of its tokens, [B, T, ...]."""
    return said[row] if said.dim() == 2 else said[row, :length].flatten()
