"""The recommender against its equation, and ratings it has not seen."""

from __future__ import annotations

import math

import pytest
import torch

from heed.core.errors import InputError
from heed.tasks.embeddings.dot_products import TwoTables
from heed.tasks.embeddings.recommend import Recommend, rating_loss


def test_the_loss_is_its_equation() -> None:
    torch.manual_seed(0)
    table = TwoTables(3, 4, 2, shifts=True).double()
    for shift in table.shifts:
        torch.nn.init.normal_(shift)
    pairs, wanted = torch.tensor([[0, 1], [2, 3]]), torch.tensor([4.0, 1.0], dtype=torch.float64)
    u, v = table.left.weight.tolist(), table.right.weight.tolist()
    users, items, (all_,) = (shift.tolist() for shift in table.shifts)
    total = 0.0
    for (a, b), rating in zip(pairs.tolist(), wanted.tolist(), strict=True):
        found = sum(x * y for x, y in zip(u[a], v[b], strict=True)) + users[a] + items[b] + all_
        total += (rating - found) ** 2 + 0.1 * sum(x * x for x in (*u[a], *v[b]))
    assert math.isclose(rating_loss(table, pairs, wanted, 0.1).item(), total, rel_tol=1e-13)


def test_ratings_that_were_kept_out_are_found() -> None:
    """Two hidden features make all ratings; a seventh of the pairs is kept out."""
    draw = torch.Generator().manual_seed(0)
    u, v = torch.rand(12, 2, generator=draw), torch.rand(10, 2, generator=draw)
    rated = [(f"u{a}", f"i{b}", float(u[a] @ v[b])) for a in range(12) for b in range(10)]
    kept = rated[::7]
    model = Recommend(width=2, rounds=600, decay=1e-4).learn(each for each in rated if each not in kept)
    mean = sum(rating for _, _, rating in rated) / len(rated)
    error = sum((model.rate(user, item) - rating) ** 2 for user, item, rating in kept)
    plain = sum((mean - rating) ** 2 for _, _, rating in kept)
    assert error < 0.15 * plain, error / plain


def test_the_best_come_first_and_known_ones_are_left_out() -> None:
    ratings = [("ann", "x", 5.0), ("ann", "y", 1.0), ("ann", "z", 3.0), ("bob", "x", 4.0), ("bob", "z", 2.0)]
    model = Recommend(rounds=400).learn(ratings)
    assert [item for item, _ in model.best("ann", 3)] == ["x", "z", "y"]
    assert [item for item, _ in model.best("ann", 2, beside=["x"])] == ["z", "y"]
    with pytest.raises(InputError, match="the user 'eve' was not there while learning"):
        model.rate("eve", "x")
    with pytest.raises(InputError, match="no rating to learn from"):
        Recommend().learn([])
