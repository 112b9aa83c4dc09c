"""Functions that make masks: the triangle is a triangle, with its diagonal."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..foreign.signature import Signature
from ..foreign.sizes import Sizes, cut, size_word
from ..foreign.words import Role
from ..outcome import Clue, Outcome, Sure

TOKENS = 7


WINDOW = 3
LENGTHS = (7, 4, 2)  # of three texts


def asked(target: Any, name: str) -> list[Outcome]:
    """A square mask: no query sees ahead, each sees itself, in one polarity or the other; or one of padding."""
    mask = _made(target)
    if mask is None:
        return [_padding(target, name)]
    window = WINDOW if _windowed(target, name) else None
    for words, sees in _readings(mask):
        wrong = _judged(sees, window)
        if wrong is None:
            return [Outcome.held("triangle", f"a causal triangle; {words}")]
    sees = _most_probable(mask)
    slug, words = _judged(sees, window) or ("future-leak", "")
    return [Outcome.broken("triangle", words, Clue(slug, Sure.LIKELY, words))]


def _windowed(target: Any, name: str) -> bool:
    """Whether it has a window: then what lies further back is hidden, as it should be."""
    named = {*cut(name), *(word for argument in Signature.of(target).roles for word in cut(argument))}
    return bool(named & {"window", "local", "sliding", "banded", "band"})


def _given(target: Any) -> dict[str, Any]:
    """What is passed beside the length: a window, what else its names ask for."""
    signature = Signature.of(target)
    others = list(signature.roles)[1:]
    found: dict[str, Any] = {}
    for name in others:
        word = size_word(name)
        if word == "window":
            found[name] = WINDOW
        elif name in signature.needed:
            found[name] = TOKENS if signature.roles[name] is Role.LENGTH else getattr(Sizes(), word) if word else None
    return found


def _made(target: Any) -> Tensor | None:
    signature = Signature.of(target)
    first = next(iter(signature.roles), None)
    if first is None:
        return None
    for given in (TOKENS, torch.zeros(2, TOKENS, 24), torch.ones(2, TOKENS, dtype=torch.long), (1, TOKENS, TOKENS)):
        try:
            made = target(**{first: given, **_given(target)})
        except Exception:  # not its way
            continue
        if isinstance(made, Tensor):
            square = made
            while square.dim() > 2:
                square = square[0]
            if square.shape == (TOKENS, TOKENS):
                return square
    return None


def _padding(target: Any, name: str) -> Outcome:
    """A mask of who is there, made of lengths or of ids: all of one kind up to the length, all of the other beyond."""
    lengths = torch.tensor(LENGTHS)
    real = torch.arange(TOKENS) < lengths[:, None]
    first = next(iter(Signature.of(target).roles), "")
    for given in (lengths, real.long() * 5, list(LENGTHS)):
        try:
            made = target(**{first: given, **_given(target)})
        except Exception:  # not its way
            continue
        if not isinstance(made, Tensor) or made.numel() != real.numel():
            continue
        told = made.reshape(real.shape)
        for words, sees in _readings(told):
            if torch.equal(sees, real):
                return Outcome.held("padding", f"hides what lies beyond the length, and nothing else; {words}")
        words = f"of texts of {', '.join(map(str, LENGTHS))} tokens it does not mark just those"
        return Outcome.broken("padding", words, Clue("padding-leak", Sure.LIKELY, words))
    return Outcome.moot(
        "triangle", f"{name} gives no square for {TOKENS} tokens, nor a mask for texts of other lengths"
    )


def _readings(mask: Tensor) -> list[tuple[str, Tensor]]:
    """What the numbers may mean."""
    if mask.dtype is torch.bool or bool(((mask == 0) | (mask == 1)).all()):
        told = mask.bool()
        return [("True or 1 = may be seen", told), ("True or 1 = hidden", ~told)]
    return [("0 = may be seen, what is very small = hidden", mask > -1.0)]


def _most_probable(mask: Tensor) -> Tensor:
    """The reading under which fewer pairs look ahead."""
    return min((sees for _, sees in _readings(mask)), key=lambda sees: int(sees.triu(1).sum()))


def _judged(sees: Tensor, window: int | None = None) -> tuple[str, str] | None:
    ahead = sees.triu(1)
    if bool(ahead.any()) and not bool(sees.tril(-1).any()):
        return "mask-inverted", "every token may see those that come later, and none that come before it"
    if bool(ahead.any()):
        i, j = (int(v) for v in ahead.nonzero()[0])
        return "future-leak", f"token {i} may see token {j}, which comes later"
    blind = (~sees.diagonal()).nonzero().flatten().tolist()
    if blind:
        return "excludes-self", f"token {blind[0]} may not see itself"
    near = torch.ones_like(sees).tril()
    if window is not None and not bool(sees.tril(-window - 1).any()):  # so many, itself included or not
        near = near.triu(1 - window)
    lost = (~sees & near).nonzero()
    if len(lost):
        i, j = (int(v) for v in lost[0])
        return "mask-inverted", f"token {i} may not see token {j}, which comes before it"
    return None
