"""What a model over token ids must be given beside them: other ids, a source, a mask, lengths. Found by trial."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice, product
from typing import Any

import torch
from torch import Tensor, nn

from ..foreign.words import Role

Made = Callable[[Tensor], Any]  # of the ids that it is passed beside
SOURCE = 5  # tokens of a source
MOST = 60  # combinations


def choices(role: Role, width: int, vocabulary: int) -> Sequence[Made]:
    """What one argument may be, the most likely first."""
    draw = torch.Generator().manual_seed(7)
    stream = torch.randn(1, SOURCE, width, generator=draw, dtype=torch.float32)  # in which models are run
    others = torch.randint(3, vocabulary, (1, SOURCE), generator=draw)

    def source(ids: Tensor) -> Tensor:
        return stream.expand(len(ids), -1, -1)

    def more(ids: Tensor) -> Tensor:
        return others.expand(len(ids), -1)

    by_role: dict[Role, Sequence[Made]] = {
        Role.IDS: (more, torch.clone),
        Role.INPUT: (more, source, torch.clone),
        Role.SOURCE: (source, more, _nothing),
        Role.MASK: (_nothing, lambda ids: torch.ones_like(ids, dtype=torch.bool), _all_pairs(True), _all_pairs(False)),
        Role.PADDING: (_nothing, lambda ids: torch.zeros_like(ids, dtype=torch.bool)),
        Role.LENGTHS: (lambda ids: torch.full((len(ids),), ids.shape[1]),),
        Role.PLACES: (lambda ids: torch.arange(ids.shape[1]).expand_as(ids),),
        Role.LABELS: (torch.clone,),
    }
    return by_role.get(role, (_nothing, source, more, lambda ids: False))


def _nothing(ids: Tensor) -> None:
    return None


def _all_pairs(told: bool) -> Made:
    """A mask that says the same of every key, however many there are. [1, 1, 1, 1]"""
    return lambda ids: torch.full((1, 1, 1, 1), told)


def combinations(model: nn.Module, roles: dict[str, Role], vocabulary: int) -> Iterator[dict[str, Made]]:
    """Ways to fill all that must be given, the most likely first."""
    width = next((part.embedding_dim for part in model.modules() if isinstance(part, nn.Embedding)), 1)
    found = [choices(role, width, vocabulary) for role in roles.values()]
    for chosen in islice(product(*found), MOST):
        yield dict(zip(roles, chosen, strict=True))
