"""Mamba's selective scan over many tokens, as operators of torch: `heed::selective` and its gradient.

Each of them has a form written out in torch, token by token, which says what it computes. The kernel goes through the
tokens in the same order, all states of some channels at hand, so that nothing but inputs and outputs travels; beside
them it keeps the state before every chunk, from which backwards the states of a chunk are made again. A chunk has as
many tokens as a channel has numbers, or more: what is kept is no larger than the inputs.

In float32 what is added at one token is rounded at each of the tokens after it that it lasts. With x = Δ A the error e
of a state obeys e_t <= exp(x_t) e_{t-1} + (|x_t| + 8) · 2^-24 · H_t, with H the same recurrence over magnitudes: x is
rounded once, its exponential is off by four such units, products and the sum are rounded once each.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from .abi import SelectiveScan, SelectiveScanGradients
from .dispatch import kernels, must_have, once
from .refusals import must_be_done

CHUNK = 64  # tokens of which all states are held at once: they fit into a cache

_MORE = torch.library.Library("heed", "FRAGMENT")  # type: ignore[no-untyped-call]
for _schema in (
    "selective(Tensor step, Tensor u, Tensor write, Tensor read, Tensor rates, Tensor start)"
    " -> (Tensor, Tensor, Tensor)",
    "selective_back(Tensor y, Tensor last, Tensor step, Tensor u, Tensor write, Tensor read, Tensor rates,"
    " Tensor states)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
):
    _MORE.define(_schema)  # type: ignore[no-untyped-call]


def selective(
    step: Tensor, u: Tensor, write: Tensor, read: Tensor, rates: Tensor, start: Tensor
) -> tuple[Tensor, Tensor]:
    """y_t = C_t·h_t, h_t = exp(Δ_t A) ⊙ h_{t-1} + Δ_t B_t u_t, and the last h.

    Steps Δ and inputs u [B, T, D], B to write and C to read [B, T, S], rates A [S, D], h [B, S, D]. A step of 0 leaves
    no trace: that is padding.
    """
    y, last, _ = torch.ops.heed.selective(step, u, write, read, rates, start)
    return y, last


def selective_written_out(
    step: Tensor, u: Tensor, write: Tensor, read: Tensor, rates: Tensor, start: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The same as the equations stand; and the state before every chunk, and after the last one."""
    length, h, states = chunk(rates), start, [start]
    made = torch.empty_like(step)
    for t in range(step.shape[1]):
        h = torch.exp(step[:, t, None] * rates) * h + write[:, t, :, None] * (step[:, t] * u[:, t])[:, None]
        made[:, t] = (read[:, t, :, None] * h).sum(1)
        if (t + 1) % length == 0 or t + 1 == step.shape[1]:
            states.append(h)
    return made, h.clone(), torch.stack(states, 1)


def selective_back_written_out(
    y: Tensor, last: Tensor, step: Tensor, u: Tensor, write: Tensor, read: Tensor, rates: Tensor, states: Tensor
) -> tuple[Tensor, ...]:
    """Gradients of all that went in, from those of y and the last state: g_t = C_t ∂y_t + exp(Δ_{t+1} A) ⊙ g_{t+1}."""
    found = [torch.empty_like(x) for x in (step, u, write, read)]
    late, steep = last, torch.zeros_like(rates)
    h = [states[:, 0]]
    for t in range(step.shape[1]):
        h.append(torch.exp(step[:, t, None] * rates) * h[-1] + write[:, t, :, None] * (step * u)[:, t, None])
    for t in range(step.shape[1] - 1, -1, -1):
        late = late + read[:, t, :, None] * y[:, t, None]
        found[3][:, t] = (h[t + 1] * y[:, t, None]).sum(2)
        found[2][:, t] = (late * (step * u)[:, t, None]).sum(2)
        entered = (late * write[:, t, :, None]).sum(1)
        late = late * torch.exp(step[:, t, None] * rates)
        found[1][:, t] = entered * step[:, t]
        found[0][:, t] = entered * u[:, t] + (late * h[t] * rates).sum(1)
        steep = steep + (late * h[t] * step[:, t, None]).sum(0)
    return *found, steep, late.clone()


def chunk(rates: Tensor) -> int:
    """Tokens of a chunk."""
    return max(CHUNK, len(rates))


def _shapes(
    step: Tensor, u: Tensor, write: Tensor, read: Tensor, rates: Tensor
) -> tuple[tuple[Tensor, list[int]], ...]:
    """What the kernel reads, and in which shape."""
    few, many = [*step.shape[:2], len(rates)], [len(rates), step.shape[2]]
    return (u, list(step.shape)), (write, few), (read, few), (rates, many)


def _scan(inputs: list[Tensor], states: Tensor) -> SelectiveScan:
    step, _, write, _, rates = inputs
    sizes = (*step.shape, write.shape[2], chunk(rates))
    return SelectiveScan(*sizes, *(tensor.data_ptr() for tensor in (*inputs, states)))


def _selective(
    step: Tensor, u: Tensor, write: Tensor, read: Tensor, rates: Tensor, start: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    given = (step, u, write, read, rates, start)
    compiled = kernels(*given)
    if compiled is None:
        return selective_written_out(*given)
    must_have("selective", *_shapes(step, u, write, read, rates), (start, (len(step), *rates.shape)))
    inputs = [tensor.contiguous() for tensor in given[:5]]
    y = torch.empty_like(inputs[0])
    states = start.new_empty(len(start), -(-step.shape[1] // chunk(rates)) + 1, *start.shape[1:])
    states[:, 0] = start
    scan = ctypes.byref(_scan(inputs, states))
    must_be_done(compiled.heed_selective_scan(scan, y.data_ptr(), torch.get_num_threads()))
    return y, states[:, -1].clone(), states  # a view would keep all of them alive


def _selective_back(
    y: Tensor, last: Tensor, step: Tensor, u: Tensor, write: Tensor, read: Tensor, rates: Tensor, states: Tensor
) -> tuple[Tensor, ...]:
    compiled = kernels(y, last, step, u, write, read, rates, states)
    if compiled is None:
        return selective_back_written_out(y, last, step, u, write, read, rates, states)
    kept = (len(step), -(-step.shape[1] // chunk(rates)) + 1, *rates.shape)
    must_have("selective_back", *_shapes(step, u, write, read, rates), (y, step.shape), (states, kept))
    must_have("selective_back", (last, (len(step), *rates.shape)))
    states = states.contiguous()
    inputs, above = [x.contiguous() for x in (step, u, write, read, rates)], (y.contiguous(), last.contiguous())
    threads = torch.get_num_threads()
    found = [torch.empty_like(inputs[0]), torch.empty_like(inputs[0]), torch.empty_like(above[1])]
    sums = [x.new_zeros(threads, *x.shape) for x in inputs[2:]]  # each thread adds up on its own
    gradients = SelectiveScanGradients(*(x.data_ptr() for x in (*above, *found, *sums)))
    scan = ctypes.byref(_scan(inputs, states))
    must_be_done(compiled.heed_selective_scan_back(scan, ctypes.byref(gradients), threads))
    added = (x[0] if threads == 1 else x.sum(0) for x in sums)
    return found[0], found[1], *added, found[2]


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:5], output[2])
    ctx.mark_non_differentiable(output[2])
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, y: Tensor | None, last: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
    inputs = ctx.saved_tensors
    if y is None and last is None:
        return (None,) * 6
    y = torch.zeros_like(inputs[0]) if y is None else y
    last = torch.zeros_like(inputs[5][:, -1]) if last is None else last
    found: tuple[Tensor, ...] = torch.ops.heed.selective_back(y, last, *inputs)
    return found


def _like(
    step: Tensor, u: Tensor, write: Tensor, read: Tensor, rates: Tensor, start: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    states = start.new_empty(len(start), -(-step.shape[1] // chunk(rates)) + 1, *start.shape[1:])
    return step.new_empty(step.shape), start.new_empty(start.shape), states


def _like_given(
    y: Tensor, last: Tensor, step: Tensor, u: Tensor, write: Tensor, read: Tensor, rates: Tensor, states: Tensor
) -> tuple[Tensor, ...]:
    return tuple(x.new_empty(x.shape) for x in (step, u, write, read, rates, last))


for _name, _form, _written, _fake in (
    ("selective", _selective, selective_written_out, _like),
    ("selective_back", _selective_back, selective_back_written_out, _like_given),
):
    _MORE.impl(_name, _form, "CPU")  # type: ignore[no-untyped-call]
    _MORE.impl(_name, _written, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"heed::{_name}", _fake, lib=_MORE)
torch.library.register_autograd("heed::selective", _gradients, setup_context=_keep, lib=_MORE)
once("selective_back", _MORE)
