"""Statements about the sampling kernel: it draws what sampling written out in torch draws."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import torch
from torch import Tensor

from ..core.laws import Finding
from ..decode import Greedy, Sample, SamplingConfig
from ..engine.execution import SamplingSettings, sample, topk_logprobs
from .base import largest

ROWS, DRAWS = 6, 3
CLOSE = 4e-6  # log-probabilities in float32: some 30 roundings of 2^-23
STRATEGIES: tuple[SamplingConfig, ...] = (
    Greedy(),
    Sample(),
    Sample(temperature=1e-310),
    Sample(temperature=50.0, top_p=0.5),
    Sample(top_k=5),
    Sample(top_p=0.9),
    Sample(min_p=0.2),
    Sample(temperature=1.3, top_k=40, top_p=0.9, min_p=0.01),
)


def choices() -> list[Finding]:
    """Tokens that are not those of the written-out form, or have another log-probability; a draw would have to fall
    within rounding of a border."""
    return [
        Finding("kernels", _wrong(how, logits), 0.0, f"{how!r} from {logits.shape[1]} tokens")
        for how in STRATEGIES
        for logits in _logits()
    ]


def ranks() -> list[Finding]:
    """Top-k log-probabilities, and the tokens that have them, each of which is named once."""
    found = []
    for logits in _logits():
        count, exact = min(7, logits.shape[1]), logits.log_softmax(1)
        logp, tokens = topk_logprobs(logits, count)
        apart = largest(
            float((logp - wanted).abs().max()) for wanted in (exact.topk(count).values, exact.gather(1, tokens))
        )
        once = bool((tokens.sort(1).values.diff(dim=1) > 0).all())
        found.append(Finding("kernels", apart if once else inf, CLOSE, f"top {count} of {logits.shape[1]} tokens"))
    return found


def _logits() -> Iterator[Tensor]:
    """Odd sizes; flat, steep, and many equal ones."""
    draw = torch.Generator().manual_seed(0)
    for vocabulary in (1, 17, 130, 5003):
        plain = torch.randn(ROWS, vocabulary, generator=draw)
        yield from (0.01 * plain, 9 * plain, (2 * plain).round())


def _wrong(how: SamplingConfig, logits: Tensor) -> float:
    rule = SamplingSettings(torch.ones(ROWS, dtype=torch.bool), enough=1, ends=torch.empty(0, dtype=torch.long))
    one, other, wrong = how.seeded(0).start(ROWS), how.seeded(0).start(ROWS), 0.0
    exact = logits.log_softmax(1)
    for _ in range(DRAWS):
        tokens, logp = sample(logits, other.settings(rule, 1))
        told = (logp - exact.gather(1, tokens[:, None])[:, 0]).abs() <= CLOSE
        wrong += float(((tokens != one(logits)) | ~told).sum())
        other.used(1)
    return wrong
