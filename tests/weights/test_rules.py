"""Every way to store weights is what its docstring draws, entry by entry, and its way back undoes it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from heed.weights.rename import Fused, Rule
from heed.weights.rules import Depthwise, Framed, Grouped, Row, Stacked, Transposed

SIZE, WIDTH = 2, 3


def numbered(*shape: int) -> Tensor:
    return torch.arange(torch.Size(shape).numel()).reshape(shape)


def rows(tensor: Tensor, *numbers: int) -> Tensor:
    return tensor[list(numbers)]


def test_columns_stand_side_by_side() -> None:
    """GPT-2's Conv1D: [in, out], queries in the first third of the columns."""
    theirs = numbered(WIDTH, 3 * SIZE)
    for part, made in enumerate(Transposed("w", ("q", "k", "v")).split(theirs)):
        assert torch.equal(made, theirs[:, part * SIZE : (part + 1) * SIZE].T)


def test_rows_stand_below_one_another() -> None:
    theirs = numbered(3 * SIZE, WIDTH)
    for part, made in enumerate(Fused("w", ("q", "k", "v")).split(theirs)):
        assert torch.equal(made, theirs[part * SIZE : (part + 1) * SIZE])


def test_heads_come_in_groups() -> None:
    """Two groups of two queries, a key and a value: q0 q1 k0 v0, q2 q3 k1 v1, each of two rows (Falcon 40B)."""
    theirs = numbered(16, WIDTH)
    query, key, value = Grouped("w", ("q", "k", "v"), groups=2, shares=(2, 1, 1)).split(theirs)
    assert torch.equal(query, rows(theirs, 0, 1, 2, 3, 8, 9, 10, 11))
    assert torch.equal(key, rows(theirs, 4, 5, 12, 13))
    assert torch.equal(value, rows(theirs, 6, 7, 14, 15))


def test_experts_are_layers_of_one_tensor() -> None:
    """Gate and up of an expert lie below one another, experts behind one another."""
    theirs = numbered(2, 2 * SIZE, WIDTH)
    gate, up, other_gate, other_up = Stacked("w", ("a.gate", "a.up", "b.gate", "b.up"), each=2).split(theirs)
    assert torch.equal(gate, theirs[0, :SIZE])
    assert torch.equal(up, theirs[0, SIZE:])
    assert torch.equal(other_gate, theirs[1, :SIZE])
    assert torch.equal(other_up, theirs[1, SIZE:])


RULES: tuple[tuple[Rule, tuple[int, ...]], ...] = (
    (Transposed("w", ("q", "k", "v")), (WIDTH, 3 * SIZE)),
    (Transposed("w", ("one",)), (WIDTH, SIZE)),
    (Fused("w", ("q", "k", "v")), (3 * SIZE, WIDTH)),
    (Grouped("w", ("q", "k", "v"), 2, (2, 1, 1)), (16, WIDTH)),
    (Grouped("b", ("q", "k", "v"), 4, (1, 1, 1)), (24,)),
    (Stacked("w", ("a", "b")), (2, SIZE, WIDTH)),
    (Stacked("w", ("a.gate", "a.up", "b.gate", "b.up", "c.gate", "c.up"), each=2), (3, 2 * SIZE, WIDTH)),
    (Row("b", "bias"), (1, WIDTH)),
    (Framed("p", "table", axes=1), (1, SIZE, WIDTH)),
    (Framed("p", "mark", axes=2), (1, 1, WIDTH)),
    (Depthwise("w", "taps"), (WIDTH, 1, SIZE)),
)


@pytest.mark.parametrize(("rule", "shape"), RULES, ids=lambda one: repr(one) if isinstance(one, Rule) else "")
def test_there_and_back(rule: Rule, shape: tuple[int, ...]) -> None:
    theirs = numbered(*shape)
    ours = rule.split(theirs)
    assert len(ours) == len(rule.targets)
    assert sum(part.numel() for part in ours) == theirs.numel()
    assert torch.equal(rule.join(ours), theirs)
