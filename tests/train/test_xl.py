"""A memory is worth its price: of two Transformer-XLs that are trained for the same time, the one that has it wins."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from time import process_time

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.models import Decoder, TransformerXL
from heed.parts.outputs.loss import headed_cross_entropy
from tests.trained.material import data

SECONDS = 60.0  # of one processor, for each of the two: a busy machine changes no outcome
LENGTH, CONTEXT, ROWS = 8, 512, 8


@dataclass
class Learner:
    """A model, and for how long it was trained."""

    memory: int
    seconds: float = 0.0
    steps: int = 0
    model: Decoder = field(init=False)

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        self.model = TransformerXL(width=96, depth=3, heads=4, length=LENGTH, memory=self.memory).sized(256).build()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3, betas=(0.9, 0.99), weight_decay=0.01)

    def step(self, tokens: Tensor) -> None:
        """One of a rate that rises for a twentieth of the time and then falls to nothing."""
        begun, share = process_time(), self.seconds / SECONDS
        for group in self.optimizer.param_groups:
            group["lr"] = 3e-3 * min(1.0, 0.02 + share / 0.05, (1 - share) / 0.95 + 0.01)
        loss = self.loss(tokens)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.seconds, self.steps = self.seconds + process_time() - begun, self.steps + 1

    def loss(self, tokens: Tensor) -> Tensor:
        """Nats per byte over windows of many segments. [B, CONTEXT + 1]"""
        (stream, _), head = (
            self.model.hidden_states(tokens[:, :-1], Where.run(len(tokens), CONTEXT)),
            self.model.lm_head,
        )
        return headed_cross_entropy(stream, head, tokens[:, 1:]).total / tokens[:, 1:].numel()


def windows(text: Tensor, starts: Tensor) -> Tensor:
    return text[starts[:, None] + torch.arange(CONTEXT + 1)].long()


@pytest.mark.slow
def test_with_a_memory_the_loss_is_lower_after_the_same_time() -> None:
    with gzip.open(data("long/war_and_peace.txt.gz")) as file:
        text = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
    held = len(text) * 9 // 10
    draws = {memory: torch.Generator().manual_seed(1) for memory in (0, 2 * LENGTH)}
    learners = [Learner(memory) for memory in draws]
    while min(learner.seconds for learner in learners) < SECONDS:
        learner = min(learners, key=lambda one: one.seconds)
        learner.step(windows(text, torch.randint(held - CONTEXT - 1, (ROWS,), generator=draws[learner.memory])))
    valid = windows(text, torch.arange(held, len(text) - CONTEXT - 1, CONTEXT)[:160])
    with torch.no_grad():
        forgets, remembers = (
            sum(float(learner.loss(part)) * len(part) for part in valid.split(ROWS)) / len(valid)
            for learner in learners
        )
    print(f"\nmemory 0: {forgets:.3f} nats after {learners[0].steps} steps; ", end="")
    print(f"memory {learners[1].memory}: {remembers:.3f} nats after {learners[1].steps} steps")
    assert remembers < forgets - 0.02
