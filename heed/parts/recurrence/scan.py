"""First-order recurrences over a sequence, all steps at once: h_t = a_t ⊙ h_{t-1} + b_t, from a state to a state.

`looped` is the specification, one token after the other. `scan` gives the same in O(n) work and O(log n) steps: pairs
of tokens are one token of a sequence half as long, which is scanned first (Blelloch 1990). Nothing is divided and no
logarithm is taken: decays of at most 1 are multiplied and may underflow, which says that something is forgotten.

In float32 |scan - exact| <= 4 (log2 n + 1) · 2^-24 · H, with H the same recurrence over magnitudes: what arrives at a
token was rounded at most four times at each level of pairs, however far it came. A loop rounds it at every token.

A long sequence is taken piece by piece (`pieces`), each small enough for a cache. Backwards a piece may be computed
again (`recomputed`): then what is held is the state before every piece, not after every token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from ...core.stamps import Stamps

PIECE = 2**19  # numbers that a piece computes at once: some tensors of them fit into a cache
LEAST = 16  # tokens of a piece

Memory: TypeAlias = "tuple[Tensor, ...]"  # a state, rows first
Step: TypeAlias = "Callable[..., tuple[Tensor, Memory]]"  # step(state, count, *inputs); see `pieces`


def looped(decay: Tensor, update: Tensor, start: Tensor) -> Tensor:
    """h_t = decay_t ⊙ h_{t-1} + update_t as it stands. [B, T, ...] twice and [B, ...] -> [B, T, ...]"""
    states = [start]
    for token in range(update.shape[1]):
        states.append(decay[:, token] * states[-1] + update[:, token])
    return torch.stack(states[1:], 1)


def scan(decay: Tensor, update: Tensor, start: Tensor) -> Tensor:
    """The same, all tokens at once; real or complex. An axis of `decay` beside the tokens' may be 1: one for all."""
    states: Tensor = _Scan.apply(decay, update, start)  # type: ignore[no-untyped-call]
    return states


@torch.no_grad()
def crests(key: Tensor, fade: Tensor, start: Tensor) -> Tensor:
    """The highest key so far, fading: p_t = max(p_{t-1} + fade, key_t). [B, T, D], [D], [B, D] -> [B, T, D]

    Levels for sums of exponentials. What is computed relative to a level does not depend on it: it has no gradient.
    """
    tokens = key.shape[1]
    if tokens == 1:
        return torch.maximum(start[:, None] + fade, key)
    pairs = tokens // 2
    odd = crests(torch.maximum(key[:, 0 : 2 * pairs : 2] + fade, key[:, 1::2]), 2 * fade, start)
    made = torch.empty_like(key)
    made[:, 0] = torch.maximum(start + fade, key[:, 0])
    made[:, 1::2] = odd
    made[:, 2::2] = torch.maximum(odd[:, : (tokens - 1) // 2] + fade, key[:, 2::2])
    return made


def before(states: Tensor, start: Tensor) -> Tensor:
    """The state that every token finds: that after the token before it. [B, T, ...], [B, ...]"""
    return torch.cat((start.unsqueeze(1), states[:, :-1]), 1)


def after(states: Tensor, start: Tensor, count: Tensor | None) -> Tensor:
    """The state after so many tokens of each row, [B]; None: after all. [B, T, ...], [B, ...] -> [B, ...]"""
    if count is None:
        return states[:, -1].clone()  # a view would keep all of them alive
    rows = torch.arange(len(states), device=states.device)
    some = (count > 0).reshape(-1, *(1,) * (start.dim() - 1))
    return torch.where(some, states[rows, (count - 1).clamp(min=0)], start)


def pieces(
    step: Step, state: Memory, inputs: Sequence[Tensor], where: Stamps, numbers: int, fixed: Sequence[Tensor] = ()
) -> tuple[Tensor, Memory]:
    """`y, state = step(state, count, *inputs, *fixed)`, one piece of the tokens after the other: all y, the last state.

    `inputs` are [B, T, ...], of which a step gets its tokens; it gets all of what is `fixed`. `count` says how many
    tokens each row has in this piece, None: all are tokens. A token takes so many `numbers` in all rows together: they
    tell how long a piece is.
    """
    size, tokens = max(LEAST, PIECE // numbers), where.shape[1]
    count = where.real.sum(1) if where.span.padded else None
    made = []
    for begin, some in zip(
        range(0, tokens, size), zip(*(torch.split(x, size, 1) for x in inputs), strict=True), strict=True
    ):
        y, state = step(state, None if count is None else (count - begin).clamp(0, size), *some, *fixed)
        made.append(y)
    return made[0] if len(made) == 1 else torch.cat(made, 1), state


def recomputed(step: Step) -> Step:
    """The same step, of which only what goes in and out is held: what is inside is computed again backwards.

    It must depend on nothing but what it is given.
    """

    def again(state: Memory, count: Tensor | None, *inputs: Tensor) -> tuple[Tensor, Memory]:
        y, *after = _Again.apply(step, len(state), count, *state, *inputs)  # type: ignore[no-untyped-call]
        return y, tuple(after)

    return again


class _Again(torch.autograd.Function):
    """torch's own checkpoint would do, but it imports a compiler when it is first called, which takes seconds."""

    @staticmethod
    def forward(ctx: Any, step: Step, parts: int, count: Tensor | None, *given: Tensor) -> tuple[Tensor, ...]:
        ctx.step, ctx.parts, ctx.count = step, parts, count
        ctx.save_for_backward(*given)
        y, state = step(given[:parts], count, *given[parts:])
        return y, *state

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        twice = torch.is_grad_enabled()
        with torch.enable_grad():
            given = [
                tensor.view_as(tensor) for tensor in ctx.saved_tensors
            ]  # one may depend on another: here it does not
            y, state = ctx.step(tuple(given[: ctx.parts]), ctx.count, *given[ctx.parts :])
        learns = [tensor for tensor in given if tensor.requires_grad]
        found = iter(torch.autograd.grad((y, *state), learns, gradients, create_graph=twice, allow_unused=True))
        return None, None, None, *(next(found) if tensor.requires_grad else None for tensor in given)


class _Scan(torch.autograd.Function):
    """Backwards it is the same recurrence from the last token on: g_t = ∂y_t + a_{t+1} g_{t+1}."""

    @staticmethod
    def forward(ctx: Any, decay: Tensor, update: Tensor, start: Tensor) -> Tensor:
        states = torch.empty_like(update)
        _pairwise(decay, update, start, states)
        ctx.save_for_backward(decay, states, start)
        return states

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        decay, states, start = ctx.saved_tensors
        decay = decay.conj()
        tokens = decay.shape[1]
        reverse = torch.arange(tokens, 0, -1, device=decay.device) % tokens  # the first one meets zeros
        late = scan(decay.index_select(1, reverse), gradient.flip(1), torch.zeros_like(start)).flip(1)
        steep = (late * before(states, start).conj()).sum_to_size(decay.shape)
        return steep, late, decay[:, 0] * late[:, 0]


def _pairwise(decay: Tensor, update: Tensor, start: Tensor, into: Tensor) -> None:
    """h_{2i+1} = (a_{2i+1} a_{2i}) h_{2i-1} + (a_{2i+1} b_{2i} + b_{2i+1}): half as many tokens, then those between."""
    tokens = update.shape[1]
    torch.addcmul(update[:, 0], decay[:, 0], start, out=into[:, 0])
    if tokens == 1:
        return
    first, second, between = slice(0, tokens - tokens % 2, 2), slice(1, None, 2), slice(2, None, 2)
    right = decay[:, second]
    odd = into[:, second]
    _pairwise(right * decay[:, first], torch.addcmul(update[:, second], right, update[:, first]), start, odd)
    if tokens > 2:
        torch.addcmul(update[:, between], decay[:, between], odd[:, : (tokens - 1) // 2], out=into[:, between])
