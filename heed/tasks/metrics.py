"""Metrics of an evaluation: cross-entropy, perplexity, BLEU, chrF, exact matches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp
from typing import TYPE_CHECKING, Literal, TypeAlias
from unicodedata import normalize

import torch

from .. import engine
from ..core.errors import MissingExtra
from ..pipelines.base import AnyModel
from .feed import bucketed

if TYPE_CHECKING:
    from .base import Corpus, Item, Task

BUDGET = 4096  # tokens that are predicted in one batch

Metrics: TypeAlias = "dict[str, float | str]"


def perplexity(nats: float, tokens: int) -> float:
    """exp(nats / tokens), as large as a float can be."""
    return exp(min(nats / tokens, 700.0))


def cross_entropy_of(task: Task, model: AnyModel, batches: Iterable[Sequence[Item]]) -> tuple[float, int]:
    """Without smoothing and without dropout, summed; and the number of labels."""
    device, nats, tokens = model.device or torch.device("cpu"), 0.0, 0
    model = engine.compile(model)
    with torch.no_grad():
        for items in batches:
            batch = task.batch(items).to(device)
            nats += float(task.loss(model, batch).nats)
            tokens += batch.tokens
    return nats, tokens


def corpus_cross_entropy(task: Task, model: AnyModel, corpus: Corpus) -> tuple[float, int]:
    """The cross-entropy of all labels of a corpus, and how many there are."""
    return cross_entropy_of(task, model, bucketed(corpus.once(), task.cost, BUDGET))


def must_have_sacrebleu() -> None:
    """Raise unless BLEU can be measured: before hours of decoding, not after them."""
    try:
        import sacrebleu  # noqa: F401
    except ImportError:
        raise MissingExtra.of("sacrebleu", "train") from None


def agreement(generated: Sequence[str], wanted: Sequence[str], case: Literal["kept", "ignored"]) -> Metrics:
    """sacreBLEU (Post 2018) with its signature, chrF, and the share of exact matches, in percent."""
    must_have_sacrebleu()
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    lower = case == "ignored"
    generated, wanted = ([normalize("NFC", text) for text in texts] for texts in (generated, wanted))
    bleu, chrf = BLEU(lowercase=lower), CHRF(lowercase=lower)
    equal = [a.lower() == b.lower() if lower else a == b for a, b in zip(generated, wanted, strict=True)]
    return {
        "bleu": bleu.corpus_score(list(generated), [list(wanted)]).score,
        "chrf": chrf.corpus_score(list(generated), [list(wanted)]).score,
        "exact": 100 * sum(equal) / len(equal),
        "pairs": len(equal),
        "signature": str(bleu.get_signature()),
    }
