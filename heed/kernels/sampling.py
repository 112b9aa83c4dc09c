"""The choice of a token, by the kernel that writes many of them: for scores that are at hand."""

from __future__ import annotations

import torch
from torch import Tensor

from ..core.contract import Where
from ..core.interfaces import Choice
from .kv_slots import Memories
from .program import Draft, Program, Running


def chosen(scores: Tensor, how: Choice) -> tuple[Tensor, Tensor]:
    """A token per row and its log p, by a program that does nothing but choose. [R, V] -> [R] twice"""
    running, register = _holding(scores)
    start = torch.zeros(len(scores), dtype=torch.long), Where.run(len(scores), 1)
    tokens, logp = running.write(*start, 1, how, scores=register, cap=0.0)
    return tokens[0], logp[0]


def likeliest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Log p of the largest scores of every row, the largest first, and their tokens. [R, V] -> [R, count] twice"""
    running, register = _holding(scores)
    return running.likeliest(register, count)


def _holding(scores: Tensor) -> tuple[Running, int]:
    draft = Draft()
    register = draft.register("scores", scores.shape[1])
    running = Running(Program.of(draft), len(scores), Memories([], []))
    running.value(register).copy_(scores)
    return running, register
