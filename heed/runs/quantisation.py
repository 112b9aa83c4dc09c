"""What quantisation costs: a quantised language model beside the one it was made of, on a text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.contract import Where
from ..core.errors import InputError
from ..pipelines import Pipeline, TextGeneration
from ..pipelines.generation import room
from ..tasks.metrics import perplexity

WINDOW = 512  # tokens that are predicted together, each from those before it in the window
MOST = 1 << 14  # tokens of a text that are predicted


@dataclass(frozen=True)
class Cost:
    """Two models on the same tokens: their perplexities, and how far their logits differ."""

    tokens: int  # that were predicted
    exact_perplexity: float  # before
    perplexity: float  # after
    largest: float  # difference of a logit
    mean: float  # difference of logits, in magnitude
    spread: float  # of the logits before, as a standard deviation: what differences are small beside
    equal: float  # share of the tokens after which the largest logit is that of the same token
    exact_bytes: int  # of all weights, before
    bytes: int  # after

    def told(self) -> str:
        """For people."""
        more = self.perplexity / self.exact_perplexity - 1
        return "\n".join(
            (
                f"on {self.tokens:,} tokens, beside what it was made of:",
                f"  perplexity   {self.exact_perplexity:.4f} -> {self.perplexity:.4f} ({more:+.3%})",
                f"  logits       differ by {self.mean:.2g} on average, by {self.largest:.2g} at most; they spread by "
                f"{self.spread:.2g}",
                f"  next token   the same after {self.equal:.2%} of the tokens",
                f"  weights      {self.exact_bytes:,} -> {self.bytes:,} bytes ({self.bytes / self.exact_bytes:.1%})",
            )
        )


def read_text(path: Path) -> str:
    """The text of a file, which must hold some."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as UTF-8 text: {error}") from None
    if not text.strip():
        raise InputError(f"{path} holds no text; give one that the model would read in use")
    return text


def language_model(pipeline: Pipeline) -> TextGeneration:
    """The pipeline, if it is one whose perplexity can be measured."""
    if isinstance(pipeline, TextGeneration):
        return pipeline
    raise InputError(
        f"what quantisation costs is measured by perplexity, which {pipeline.what} has not; leave --text out"
    )


@torch.no_grad()
def cost(exact: Pipeline, quantised: Pipeline, text: str) -> Cost:
    """What was lost between two forms of one language model, on the first tokens of a text."""
    before, after = language_model(exact), language_model(quantised)
    first, ids = before.prompt(""), before.tokenizer.encode(text)[:MOST]
    if not ids:
        raise InputError("the text has no tokens; give a longer one")
    size = min(WINDOW, before.context, room(before.model)) - len(first)
    found = [
        _compared(_logits(before, first, labels), _logits(after, first, labels), labels)
        for labels in torch.split(torch.tensor(ids), size)
    ]
    largest = max(float(one.largest) for one in found)
    sums = torch.stack([one.sums for one in found]).sum(0).tolist()
    numbers, gap, total, square, equal, nats, lost = sums
    return Cost(
        tokens=len(ids),
        exact_perplexity=perplexity(nats, len(ids)),
        perplexity=perplexity(lost, len(ids)),
        largest=largest,
        mean=gap / numbers,
        spread=max(square / numbers - (total / numbers) ** 2, 0.0) ** 0.5,
        equal=equal / len(ids),
        exact_bytes=size_of(before.model),
        bytes=size_of(after.model),
    )


def size_of(model: nn.Module) -> int:
    """Bytes of its weights, tied ones once."""
    return sum({id(tensor): tensor.nbytes for tensor in model.state_dict(keep_vars=True).values()}.values())


class _Compared(NamedTuple):
    """One window."""

    largest: Tensor
    sums: Tensor  # of all else: what is counted, differences, logits, squares, agreements, nats before and after


def _compared(one: Tensor, two: Tensor, labels: Tensor) -> _Compared:
    gap, exact = (one - two).abs(), one.double()
    nats = (F.cross_entropy(logits.double(), labels, reduction="sum") for logits in (one, two))
    same = (one.argmax(-1) == two.argmax(-1)).sum()
    sums = (torch.tensor(one.numel()), gap.double().sum(), exact.sum(), exact.square().sum(), same, *nats)
    return _Compared(gap.max(), torch.stack([number.double() for number in sums]))


def _logits(pipeline: TextGeneration, first: list[int], labels: Tensor) -> Tensor:
    """The logits that each token was predicted by. [tokens, vocabulary]"""
    given = torch.cat((torch.tensor(first), labels[:-1]))[None].to(pipeline.model.device or "cpu")
    logits, _ = pipeline.model.eval()(given, Where.run(1, given.shape[1], device=given.device))
    found: Tensor = logits[0, len(first) - 1 :].float().cpu()
    return found
