"""Functions that make masks: the triangle is a triangle, with its diagonal."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..foreign.calls import Signature
from ..outcome import Clue, Outcome, Sure

TOKENS = 7


def asked(target: Any, name: str) -> list[Outcome]:
    """A square mask: no query sees ahead, each sees itself, in one polarity or the other."""
    mask = _made(target)
    if mask is None:
        return [Outcome.moot("triangle", f"{name} gives no square for {TOKENS} tokens")]
    for words, sees in _readings(mask):
        wrong = _judged(sees)
        if wrong is None:
            return [Outcome.held("triangle", f"a causal triangle; {words}")]
    sees = _most_probable(mask)
    slug, words = _judged(sees) or ("future-leak", "")
    return [Outcome.broken("triangle", words, Clue(slug, Sure.LIKELY, words))]


def _made(target: Any) -> Tensor | None:
    signature = Signature.of(target)
    first = next(iter(signature.roles), None)
    if first is None:
        return None
    for given in (TOKENS, torch.zeros(2, TOKENS, 24), torch.ones(2, TOKENS, dtype=torch.long), (1, TOKENS, TOKENS)):
        try:
            made = target(given)
        except Exception:  # not its way
            continue
        if isinstance(made, Tensor):
            square = made
            while square.dim() > 2:
                square = square[0]
            if square.shape == (TOKENS, TOKENS):
                return square
    return None


def _readings(mask: Tensor) -> list[tuple[str, Tensor]]:
    """What the numbers may mean."""
    if mask.dtype is torch.bool or bool(((mask == 0) | (mask == 1)).all()):
        told = mask.bool()
        return [("True or 1 = may be seen", told), ("True or 1 = hidden", ~told)]
    return [("0 = may be seen, what is very small = hidden", mask > -1.0)]


def _most_probable(mask: Tensor) -> Tensor:
    """The reading under which fewer pairs look ahead."""
    return min((sees for _, sees in _readings(mask)), key=lambda sees: int(sees.triu(1).sum()))


def _judged(sees: Tensor) -> tuple[str, str] | None:
    ahead = sees.triu(1)
    if bool(ahead.any()):
        i, j = (int(v) for v in ahead.nonzero()[0])
        return "future-leak", f"token {i} may see token {j}, which comes later"
    blind = (~sees.diagonal()).nonzero().flatten().tolist()
    if blind:
        return "excludes-self", f"token {blind[0]} may not see itself"
    lost = (~sees.tril() & torch.ones_like(sees).tril()).nonzero()
    if len(lost):
        i, j = (int(v) for v in lost[0])
        return "mask-inverted", f"token {i} may not see token {j}, which comes before it"
    return None
