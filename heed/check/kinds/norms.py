"""What works on each token by itself: norms, feed-forwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..foreign.guess.weights import held
from ..foreign.returned import tensors
from ..outcome import Clue, Outcome, Sure
from ..reference import distance

ROWS, TOKENS, WIDTH = 3, 7, 24


def asked(target: Any, name: str) -> list[Outcome]:
    """Each token by itself; mean 0 and variance 1, or mean square 1, over its channels."""
    call = _called(target)
    if call is None:
        return [Outcome.moot("norm", f"{name} does not give a stream for a stream")]
    apart = _apart(call, "norm-axes")
    return [apart] if apart.clues else [apart, _formula(call)]


def positionwise(target: Any, name: str) -> list[Outcome]:
    """Each token by itself, and the same for all."""
    call = _called(target)
    if call is None:
        return [Outcome.moot("tokens", f"{name} does not give a stream for a stream")]
    return [_apart(call, "batch-mixing")]


def _called(target: Any) -> Callable[[Tensor], Tensor] | None:
    target = held(target) or target
    if isinstance(target, nn.Module):
        with torch.no_grad():
            for pname, weight in target.named_parameters():
                if weight.dim() == 1:
                    weight.fill_(0.0 if "bias" in pname or "beta" in pname or pname.endswith(("b_2", ".b")) else 1.0)

    def call(x: Tensor) -> Tensor:
        with torch.no_grad():
            return next(t for t in tensors(target(x)) if t.shape == x.shape)

    try:
        call(_stream())
    except Exception:  # foreign code may raise anything
        return None
    return call


def _stream(seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(ROWS, TOKENS, WIDTH, generator=draw, dtype=torch.float64) * 2 + 0.7


def _apart(call: Callable[[Tensor], Tensor], slug: str) -> Outcome:
    x = _stream()
    other = x.clone()
    other[0, 0] += 3 * _stream(1)[0, 0]
    moved = ((call(other) - call(x)).abs().amax(-1) > 1e-9).nonzero().tolist()
    elsewhere = [place for place in moved if place != [0, 0]]
    if elsewhere:
        row, token = elsewhere[0]
        words = f"replacing token 0 of row 0 changes token {token} of row {row}"
        return Outcome.broken("tokens", words, Clue(slug, Sure.CERTAIN, words))
    return Outcome.held("tokens", "every token by itself")


def _formula(call: Callable[[Tensor], Tensor]) -> Outcome:
    x = _stream()
    y = call(x)
    centred = x - x.mean(-1, keepdim=True)
    forms = {
        "layer norm": centred / centred.square().mean(-1, keepdim=True).sqrt(),
        "root mean square norm": x / x.square().mean(-1, keepdim=True).sqrt(),
        "layer norm by the unbiased deviation (as the Annotated Transformer)": centred / x.std(-1, keepdim=True),
        "length 1": x / x.norm(dim=-1, keepdim=True),
    }
    for words, form in forms.items():
        if distance(y, form) <= 1e-4:  # eps is left out here
            return Outcome.held("norm", words)
    wrong = {
        "divided by the variance, not by its root": centred / centred.square().mean(-1, keepdim=True),
        "divided without taking the mean away": x / centred.square().mean(-1, keepdim=True).sqrt(),
        "the mean taken away, but not divided": centred,
        "multiplied by the deviation": centred * centred.square().mean(-1, keepdim=True).sqrt(),
    }
    for words, form in wrong.items():
        if distance(y, form) <= 1e-4:
            return Outcome.broken("norm", words, Clue("norm-axes", Sure.CERTAIN, words))
    mean, square = float(y.mean(-1).abs().max()), y.square().mean(-1)
    even = float(square.max() / square.min().clamp(min=1e-30))
    if even > 1.5:
        words = f"the size of its outputs differs {even:.1f} times from token to token (mean {mean:.1e})"
        return Outcome.broken("norm", words, Clue("norm-axes", Sure.LIKELY, words))
    return Outcome.moot("norm", "a norm of a kind that is not known here")
