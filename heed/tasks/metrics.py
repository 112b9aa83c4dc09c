"""Metrics of an evaluation: cross-entropy, perplexity, BLEU, chrF, exact matches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias
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


class Sums(NamedTuple):
    """What a mean loss is made of, over whatever was evaluated; of several processes each is added up."""

    nats: float
    tokens: float  # labels that they are of
    beside: float = 0.0  # of the second question, if the task asks one
    asides: float = 0.0  # labels of that

    @property
    def mean(self) -> float:
        return self.nats / self.tokens + (self.beside / self.asides if self.asides else 0.0)


def sums_of(task: Task, model: AnyModel, batches: Iterable[Sequence[Item]]) -> Sums:
    """Without smoothing and without dropout."""
    device, nats, tokens, beside, asides = model.device or torch.device("cpu"), 0.0, 0, 0.0, 0
    model = engine.compile(model)
    with torch.no_grad():
        for items in batches:
            batch = task.batch([task.fetch(item) for item in items]).to(device)
            loss = task.loss(model, batch)
            nats, tokens = nats + float(loss.nats), tokens + batch.tokens
            if loss.beside is not None:
                beside, asides = beside + float(loss.beside), asides + batch.asides
    return Sums(nats, tokens, beside, asides)


def cross_entropy_of(task: Task, model: AnyModel, batches: Iterable[Sequence[Item]]) -> tuple[float, int]:
    """The loss times the number of labels, and that number."""
    found = sums_of(task, model, batches)
    return found.nats if not found.asides else found.mean * found.tokens, int(found.tokens)


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
