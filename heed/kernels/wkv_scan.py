"""RWKV's WKV recurrence over many tokens, as operators of torch: `heed::wkv` and its gradient.

Each of them has a form written out in torch, token by token, which says what it computes. The kernel goes through the
tokens in the same order; beside its inputs it keeps the sums before every chunk, from which backwards those of a chunk
are made again.

Sums are divided by e^p, with p the largest exponent in them: no exponent is above 0, and the sum below is 1 at least.
In float32 an exponent of size K is rounded to K · 2^-24 at each of the tokens that a weight lasts.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from ..core.errors import InputError
from .abi import Wkv, WkvGradients
from .dispatch import kernels, must_have, once
from .refusals import must_be_done

CHUNK = 64  # tokens whose sums are held at once

_MORE = torch.library.Library("heed", "FRAGMENT")  # type: ignore[no-untyped-call]
for _schema in (
    "wkv(Tensor key, Tensor value, Tensor fade, Tensor bonus, Tensor start, Tensor? count) -> (Tensor, Tensor, Tensor)",
    "wkv_back(Tensor y, Tensor last, Tensor key, Tensor value, Tensor fade, Tensor bonus, Tensor states, Tensor? count)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
):
    _MORE.define(_schema)  # type: ignore[no-untyped-call]


def wkv(
    key: Tensor, value: Tensor, fade: Tensor, bonus: Tensor, start: Tensor, count: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """y_i = (e^p a + e^(u + k_i) v_i) / (e^p b + e^(u + k_i)) with the sums before the token, and the last sums:

        p_i = max(p_{i-1} + w, k_i),   a_i = e^(p_{i-1} + w - p_i) a_{i-1} + e^(k_i - p_i) v_i,   b_i without v_i

    Keys k and values v [B, T, D]; the fade w <= 0 and the bonus u of the newest [D]; a, b and p [3, B, D]. `count` says
    how many tokens each row has, None: all are tokens; behind them y is 0. A level p has no gradient.
    """
    ends = None if count is None else count.to(torch.int64).contiguous()
    y, last, _ = torch.ops.heed.wkv(key, value, fade, bonus, start, ends)
    return y, last


def wkv_written_out(
    key: Tensor, value: Tensor, fade: Tensor, bonus: Tensor, start: Tensor, count: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The same as the equations stand; and the sums before every chunk, and after the last. [B, chunks + 1, 3, D]"""
    (above, below, level), tokens = start, key.shape[1]
    made, states = torch.empty_like(key), [start]
    for t in range(tokens):
        old, own, decay, weight, after = _shares(key[:, t], level, fade, bonus)
        real = _real(t, count, key)
        made[:, t] = ((old * above + own * value[:, t]) / (old * below + own)).where(real, 0)
        above = (decay * above + weight * value[:, t]).where(real, above)
        below, level = (decay * below + weight).where(real, below), after.where(real, level)
        if (t + 1) % CHUNK == 0 or t + 1 == tokens:
            states.append(torch.stack((above, below, level)))
    return made, states[-1].clone(), torch.stack(states, 1).permute(2, 1, 0, 3).contiguous()


def wkv_back_written_out(
    y: Tensor,
    last: Tensor,
    key: Tensor,
    value: Tensor,
    fade: Tensor,
    bonus: Tensor,
    states: Tensor,
    count: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Gradients of keys, values, fade, bonus and the first sums, from those of y and of the last sums."""
    above, below, level = states[:, 0].unbind(1)
    found = []
    for t in range(key.shape[1]):
        old, own, decay, weight, after = _shares(key[:, t], level, fade, bonus)
        found.append((above, below, old, own, decay, weight))
        above, below, level = decay * above + weight * value[:, t], decay * below + weight, after
    to_key, to_value, to_fade, to_bonus = (torch.zeros_like(x) for x in (key, value, fade, bonus))
    late_above, late_below, late_level = last
    for t in range(key.shape[1] - 1, -1, -1):
        above, below, old, own, decay, weight = found[t]
        real, whole = _real(t, count, key), old * below + own
        mean, grad = (old * above + own * value[:, t]) / whole, y[:, t] / whole
        to_own = (own * grad * (value[:, t] - mean)).where(real, 0)
        to_weight = (weight * (late_above * value[:, t] + late_below)).where(real, 0)
        to_decay = (decay * (late_above * above + late_below * below)).where(real, 0)
        to_key[:, t], to_value[:, t] = to_own + to_weight, (own * grad + weight * late_above).where(real, 0)
        to_fade, to_bonus = to_fade + to_decay.sum(0), to_bonus + to_own.sum(0)
        late_above = (decay * late_above + old * grad).where(real, late_above)
        late_below = (decay * late_below - old * grad * mean).where(real, late_below)
    return to_key, to_value, to_fade, to_bonus, torch.stack((late_above, late_below, torch.zeros_like(late_level)))


def _shares(key: Tensor, level: Tensor, fade: Tensor, bonus: Tensor) -> tuple[Tensor, ...]:
    """How much a token takes of the sums that it finds and of itself, how much of both the next one finds, and p."""
    level = level.detach()
    crest, after = torch.maximum(level, bonus + key).detach(), torch.maximum(level + fade, key).detach()
    taken = torch.exp(level - crest), torch.exp(bonus + key - crest)
    return *taken, torch.exp(level + fade - after), torch.exp(key - after), after


def _real(token: int, count: Tensor | None, key: Tensor) -> Tensor:
    """Whether this is a token of its row. [B, 1]"""
    return key.new_ones(1, 1, dtype=torch.bool) if count is None else (count > token)[:, None]


def _must_fit(key: Tensor, value: Tensor, fade: Tensor, bonus: Tensor, count: Tensor | None) -> None:
    """Raise unless these are the numbers that the kernel will read."""
    rows, _, channels = key.shape
    must_have("wkv", (value, key.shape), (fade, (channels,)), (bonus, (channels,)))
    if count is not None:
        must_have("wkv", (count, (rows,)))
        if count.dtype != torch.int64 or not count.is_contiguous():
            raise InputError(
                "heed::wkv takes counts of 64 bits in one piece; use heed.kernels.wkv, which makes them so"
            )


def _given(inputs: list[Tensor], states: Tensor, count: Tensor | None) -> Wkv:
    ends = None if count is None else count.data_ptr()
    return Wkv(*inputs[0].shape, CHUNK, ends, *(tensor.data_ptr() for tensor in (*inputs, states)))


def _wkv(
    key: Tensor, value: Tensor, fade: Tensor, bonus: Tensor, start: Tensor, count: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    compiled = kernels(key, value, fade, bonus, start)
    if compiled is None:
        return wkv_written_out(key, value, fade, bonus, start, count)
    rows, _, channels = key.shape
    _must_fit(key, value, fade, bonus, count)
    must_have("wkv", (start, (3, rows, channels)))
    inputs, y, states = [x.contiguous() for x in (key, value, fade, bonus)], key.new_empty(key.shape), _room(key)
    states[:, 0] = start.transpose(0, 1)
    given = _given(inputs, states, count)
    must_be_done(compiled.heed_wkv(ctypes.byref(given), y.data_ptr(), torch.get_num_threads()))
    return y, states[:, -1].transpose(0, 1).contiguous(), states


def _wkv_back(
    y: Tensor,
    last: Tensor,
    key: Tensor,
    value: Tensor,
    fade: Tensor,
    bonus: Tensor,
    states: Tensor,
    count: Tensor | None,
) -> tuple[Tensor, ...]:
    compiled = kernels(y, last, key, value, fade, bonus, states)
    if compiled is None:
        return wkv_back_written_out(y, last, key, value, fade, bonus, states, count)
    _must_fit(key, value, fade, bonus, count)
    must_have("wkv_back", (y, key.shape), (last, (3, len(key), key.shape[2])), (states, _kept(key)))
    states = states.contiguous()
    inputs = [x.contiguous() for x in (key, value, fade, bonus)]
    above, threads = (y.contiguous(), last[:2].transpose(0, 1).contiguous()), torch.get_num_threads()
    found = [torch.empty_like(x) for x in (*inputs[:2], above[1])]
    sums = [x.new_zeros(threads, *x.shape) for x in (fade, bonus)]  # each thread adds up on its own
    gradients = WkvGradients(*(x.data_ptr() for x in (*above, *found, *sums)))
    given = ctypes.byref(_given(inputs, states, count))
    must_be_done(compiled.heed_wkv_back(given, ctypes.byref(gradients), threads))
    started = torch.cat((found[2].transpose(0, 1), torch.zeros_like(last[2:])))
    return found[0], found[1], sums[0].sum(0), sums[1].sum(0), started


def _room(key: Tensor) -> Tensor:
    return key.new_empty(_kept(key))


def _kept(key: Tensor) -> tuple[int, ...]:
    """The shape of the sums before every chunk, and after the last."""
    rows, tokens, channels = key.shape
    return rows, -(-tokens // CHUNK) + 1, 3, channels


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:4], output[2], inputs[5])
    ctx.mark_non_differentiable(output[2])
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, y: Tensor | None, last: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
    key, *more, states, count = ctx.saved_tensors
    if y is None and last is None:
        return (None,) * 6
    y = torch.zeros_like(key) if y is None else y
    last = torch.zeros_like(states[:, -1].transpose(0, 1)) if last is None else last
    found: tuple[Tensor, ...] = torch.ops.heed.wkv_back(y, last, key, *more, states, count)
    return *found, None


def _like(
    key: Tensor, value: Tensor, fade: Tensor, bonus: Tensor, start: Tensor, count: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    return key.new_empty(key.shape), start.new_empty(start.shape), _room(key)


def _like_given(
    y: Tensor,
    last: Tensor,
    key: Tensor,
    value: Tensor,
    fade: Tensor,
    bonus: Tensor,
    states: Tensor,
    count: Tensor | None,
) -> tuple[Tensor, ...]:
    return tuple(x.new_empty(x.shape) for x in (key, value, fade, bonus, last))


for _name, _form, _written, _fake in (
    ("wkv", _wkv, wkv_written_out, _like),
    ("wkv_back", _wkv_back, wkv_back_written_out, _like_given),
):
    _MORE.impl(_name, _form, "CPU")  # type: ignore[no-untyped-call]
    _MORE.impl(_name, _written, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"heed::{_name}", _fake, lib=_MORE)
torch.library.register_autograd("heed::wkv", _gradients, setup_context=_keep, lib=_MORE)
once("wkv_back", _MORE)
