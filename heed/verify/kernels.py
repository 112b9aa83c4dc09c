"""Statements about the kernels that are active on this machine: each gives what its written-out form gives.

Without kernels there is nothing to show, which is said. What is used in their place is shown in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from ..core.contract import Where
from ..core.laws import Finding
from ..core.state import Seen
from ..engine.compiled import DecoderProgram, compiled_runner
from ..engine.passes import passed
from ..engine.program import Uncompiled
from ..kernels import library, linear, loss, selective, wkv, written_out
from ..kernels.abi import Weights
from ..kernels.build import why_none
from ..models import Decoder, Encoder
from ..parts.layers.bitnet import pack_ternary, quantise_ternary
from ..parts.layers.quantised import quantise_groups, quantise_rows
from .base import Check, Proof, compared, largest
from .samples import samples
from .sampling import choices, ranks

SIZES = (
    (1, 1, 1),
    (1, 7, 5),
    (2, 64, 4),
    (3, 33, 17),
    (6, 96, 9),
    (7, 770, 50),
    (31, 32, 3),
    (49, 1120, 37),
)  # tokens, inputs, outputs
Held: TypeAlias = Callable[[Tensor, Tensor], tuple[Any, ...]]  # a matrix and a bias, as an operator takes them
EXTREMES = (1e-30, 1e-3, 1.0, 1e6, 1e30)  # sizes of tokens
UNIT = 2.0**-23  # of the last place of a float32


def int8() -> list[Finding]:
    """8 bits by rows, to the last one; and sums as large as they can be."""

    def compare(x: Tensor, weight: Tensor, bias: Tensor) -> float:
        given = (x, *quantise_rows(weight), bias)
        return _apart(linear.int8(*given), linear.int8_written_out(*given))

    full = torch.full((4, 4096), 127, dtype=torch.int8), torch.ones(4)
    most = torch.ones(2, 4096) * torch.tensor([[1.0], [-1.0]])
    largest = _apart(linear.int8(most, *full), linear.int8_written_out(most, *full, None))
    return [*_over(compare, 0.0), Finding("kernels", largest, 0.0, "all weights and channels at their largest")]


def w8a8() -> list[Finding]:
    """8 bits by rows and channels of 8 bits, to the last one."""

    def compare(x: Tensor, weight: Tensor, bias: Tensor) -> float:
        given = (x, *quantise_rows(weight), bias)
        return _apart(linear.w8a8(*given), linear.w8a8_written_out(*given))

    return _over(compare, 0.0)


def two_bits() -> list[Finding]:
    """Ternary weights, to the last bit."""

    def compare(x: Tensor, weight: Tensor, bias: Tensor) -> float:
        whole = quantise_ternary(weight)
        given = (x, pack_ternary(whole.codes), whole.scale.reshape(1), bias, len(weight))
        return _apart(linear.two_bits(*given), linear.two_bits_written_out(*given))

    return _over(compare, 0.0)


def groups() -> list[Finding]:
    """Groups of 8 and 4 bits, up to the order of their sum."""

    def by(bits: int) -> Callable[[Tensor, Tensor, Tensor], float]:
        def compare(x: Tensor, weight: Tensor, bias: Tensor) -> float:
            codes, scale = quantise_groups(weight, bits)
            wanted = linear.grouped_written_out(x, codes, scale, bias)
            return _apart(linear.grouped(x, codes, scale, bias), wanted) / _size(x, weight, bias)

        return compare

    return [finding for bits in (8, 4) for finding in _over(by(bits), 32 * UNIT, whole_groups=True)]


def float32() -> list[Finding]:
    """Plain weights, up to the order of their sum."""

    def compare(x: Tensor, weight: Tensor, bias: Tensor) -> float:
        mine = linear.product(Weights.FLOAT32, x, weight, None, bias, len(weight))
        return _apart(mine, x.double() @ weight.double().T + bias.double()) / _size(x, weight, bias)

    return _over(compare, 32 * UNIT)


def entropy() -> list[Finding]:
    """Cross-entropies and their slopes, with smoothed labels and without: probabilities, off by few units of 1."""
    found = []
    for tokens, count, size in ((1, 1, 1.0), (3, 129, 1.0), (2, 1000, 1e3)):
        for smoothing in (0.0, 0.1):
            scores = torch.randn(tokens, count, generator=torch.Generator().manual_seed(0)) * size
            labels, exact = (torch.arange(tokens) * 7 + 5) % count, scores.double()
            mine = loss.entropy_(scores, labels, smoothing)
            wanted = loss.entropy_written_out(exact, labels, smoothing)
            sums = (_apart(one, other) / max(1.0, float(other.abs())) for one, other in zip(mine, wanted, strict=True))
            words = f"{tokens} × {count}, of size {size:g}, smoothed by {smoothing:g}; sums relative"
            found.append(Finding("kernels", largest((_apart(scores, exact), *sums)), 8 * UNIT, words))
    return found


def state_spaces() -> list[Finding]:
    """Mamba's state space, its last state and all slopes, by steps that keep, mix and forget."""
    found = []
    for rows, tokens, channels, numbers in ((1, 1, 1, 1), (2, 65, 17, 3), (1, 130, 40, 16), (2, 80, 9, 70)):
        for size in (1e-3, 1.0, 1e3):
            many, few = (rows, tokens, channels), (rows, tokens, numbers)
            step, u, write, read, rates, start = _drawn(many, many, few, few, (numbers, channels), few[::2] + many[2:])
            given = (step.abs() * size, u, write, read, -numbers * rates.abs(), start)
            apart = _both_ways(selective, given)
            found.append(Finding("kernels", apart, 64 * UNIT, f"{many} × {numbers}, steps of {size:g}; relative"))
    return found


def weighted_means() -> list[Finding]:
    """RWKV's means, their last sums and all slopes, of whole and of ragged rows; exponents of size K are rounded by K
    units."""
    found = []
    for rows, tokens, channels in ((1, 1, 1), (2, 65, 17), (1, 130, 40)):
        for size in (1.0, 100.0):
            shape = (rows, tokens, channels)
            key, value, fade, bonus, above, level = _drawn(shape, shape, *(shape[2:],) * 2, *(shape[::2],) * 2)
            start = torch.stack((above, above.abs() + 1, level))
            given = (key * size, value, -fade.exp(), bonus, start)
            for count in (None, torch.tensor([tokens - 1, tokens // 3][:rows])):
                words = f"{shape}, keys of {size:g}{'' if count is None else ', ragged'}; relative"
                apart = _both_ways(partial(_mean_and_sums, count), given)
                found.append(Finding("kernels", apart, 64 * (1 + size) * UNIT, words))
    return found


def _mean_and_sums(
    count: Tensor | None, key: Tensor, value: Tensor, fade: Tensor, bonus: Tensor, start: Tensor
) -> tuple[Tensor, Tensor]:
    mean, last = wkv(key, value, fade, bonus, start, count)
    return mean, last[:2]


def _both_ways(form: Callable[..., tuple[Tensor, ...]], given: tuple[Tensor, ...]) -> float:
    """How far a form in float32 is from itself in float64, which is written out; its slopes, too."""
    made = []
    for dtype in (torch.float32, torch.float64):
        inputs = [x.to(dtype, copy=True).requires_grad_() for x in given]
        outputs = form(*inputs)
        slopes = torch.autograd.grad(sum(((y * y).sum() for y in outputs), torch.zeros(())), inputs)
        made.append([y.detach() for y in (*outputs, *slopes)])
    return largest(_apart(one, other) / max(1.0, float(other.abs().max())) for one, other in zip(*made, strict=True))


def _drawn(*shapes: tuple[int, ...]) -> list[Tensor]:
    draw = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=draw) for shape in shapes]


def programs() -> list[Finding]:
    """Every sample of a decoder that has a program: ten tokens by steps, against plain calls."""
    found = []
    for config in samples(Decoder.Config):
        assert isinstance(config, Decoder.Config)
        if config.cross is None:
            torch.manual_seed(0)
            model = config.build().eval()
            try:
                DecoderProgram(model)
            except Uncompiled:
                continue
            apart = _stepped(model)
            found.append(Finding("kernels", apart, 1e-4, f"scores of a float32 model, relative; {config!r}"))
    return found


@torch.no_grad()
def _stepped(model: Decoder) -> float:
    tokens = torch.randint(model.vocabulary, (2, 12), generator=torch.Generator().manual_seed(0))
    with written_out():
        whole, _ = model(tokens, Where.run(2, 12))
    _, state = model(tokens[:, :2], Where.run(2, 2), model.start(2))
    assert state is not None
    runner = compiled_runner(model, state)
    assert not isinstance(runner, Uncompiled)
    made = [runner.step(tokens[:, at], Where.run(2, 1, start=at)).clone() for at in range(2, 12)]
    return _apart(torch.stack(made, 1), whole[:, 2:]) / max(1.0, float(whole.abs().max()))


def passes() -> list[Finding]:
    """Every sample of a stack that has a program: ragged rows at once, against plain calls."""
    found = []
    rows, source = Where.ragged(torch.tensor([40, 3, 17])), Where.ragged(torch.tensor([5, 9, 2]))
    for config in (*samples(Encoder.Config), *samples(Decoder.Config)):
        assert isinstance(config, Encoder.Config | Decoder.Config)
        torch.manual_seed(0)
        stack = config.build().eval().stack
        draw = torch.Generator().manual_seed(1)
        x, memory = (torch.randn(*each.shape, config.width, generator=draw) for each in (rows, source))
        where = rows.give(encoder_output=Seen.of(source, memory))
        with torch.no_grad():
            done = passed(stack, x, where, None)
            if done is None:
                continue
            with written_out():
                wanted, _ = stack(x, where)
        apart = _apart(done[0][where.real], wanted[where.real]) / max(1.0, float(wanted.abs().max()))
        found.append(Finding("kernels", apart, 1e-5, f"the stream of a float32 model, relative; {config!r}"))
    return found


def _over(
    compare: Callable[[Tensor, Tensor, Tensor], float], bound: float, *, whole_groups: bool = False
) -> list[Finding]:
    return [
        Finding("kernels", compare(*given), bound, f"{tuple(given[0].shape)} × {tuple(given[1].shape)}")
        for given in _given()
        if not whole_groups or given[0].shape[1] % linear.GROUP == 0
    ]


def _given() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    draw = torch.Generator().manual_seed(0)
    for tokens, inputs, outputs in SIZES:
        for size in EXTREMES:
            shapes = ((tokens, inputs), (outputs, inputs), (outputs,))
            x, weight, bias = (torch.randn(shape, generator=draw) for shape in shapes)
            yield x * size, weight, bias


def _apart(one: Tensor, other: Tensor) -> float:
    return float((one.double() - other.double()).abs().max())


def _size(x: Tensor, weight: Tensor, bias: Tensor) -> float:
    """The largest sum of magnitudes: rounding is measured by it."""
    return float((x.double().abs() @ weight.double().abs().T + bias.double().abs()).max())


def in_torch(form: Callable[..., Tensor], exact: Callable[..., Tensor], held: Held, bound: float) -> list[Finding]:
    """What is used without kernels, against its written-out form; relative to the magnitudes that are added up."""

    def compare(x: Tensor, weight: Tensor, bias: Tensor) -> float:
        given = held(weight, bias)
        return _apart(form(x, *given), exact(x, *given)) / _size(x, weight, bias)

    return _over(compare, bound, whole_groups=exact is linear.grouped_written_out)


def _rows(weight: Tensor, bias: Tensor) -> tuple[Any, ...]:
    return *quantise_rows(weight), bias


def _groups(bits: int) -> Held:
    return lambda weight, bias: (*quantise_groups(weight, bits), bias)


def _fields(weight: Tensor, bias: Tensor) -> tuple[Any, ...]:
    whole = quantise_ternary(weight)
    return pack_ternary(whole.codes), whole.scale.reshape(1), bias, len(weight)


KERNELS: dict[str, Callable[[], list[Finding]]] = {
    "int8 = written out": int8,
    "w8a8 = written out": w8a8,
    "two bits = written out": two_bits,
    "groups = written out": groups,
    "float32 = written out": float32,
    "entropy = written out": entropy,
    "state space = written out": state_spaces,
    "weighted means = written out": weighted_means,
    "choice = written out": choices,
    "top-k log-probabilities = written out": ranks,
    "a program = its model": programs,
    "a pass = its stack": passes,
}

DEQUANTISED: dict[str, Callable[[], list[Finding]]] = {
    "int8 = written out": partial(in_torch, linear.int8_dequantised, linear.int8_written_out, _rows, 32 * UNIT),
    "w8a8 = written out": partial(in_torch, linear.w8a8_dequantised, linear.w8a8_written_out, _rows, 0.0),
    "two bits = written out": partial(in_torch, linear.two_bits_dequantised, linear.two_bits_written_out, _fields, 0.0),
    **{
        f"groups of {bits} bits = written out": partial(
            in_torch, linear.grouped_dequantised, linear.grouped_written_out, _groups(bits), 32 * UNIT
        )
        for bits in (8, 4)
    },
}


def checks() -> Iterator[Check]:
    """Every statement about kernels; where there are none, one that could not be tried."""
    if library() is None:
        missing = f"no kernels here ({why_none()})"
        yield lambda: Proof.without("kernels", "every kernel = written out", missing)
        return
    for statement, compare in KERNELS.items():
        yield compared("kernels", statement, compare)
