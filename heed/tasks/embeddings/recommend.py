"""A recommender: features of users and items, learnt so that their dot products are ratings (Koren et al. 2009)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from ...core.config import Config, Number, Positive, Seed, Size
from .dot_products import TwoTables, batches, number_of, numbered

Rating: TypeAlias = "tuple[str, str, float]"  # a user, an item, how much that user likes it


class Recommend(Config):
    """What a user likes and what an item offers, as vectors that nobody wrote down: r(a, b) = u_a·v_b + c_a + c_b + c.

        L = Σ_(a, b) ( r_ab - r(a, b) )² + decay · Σ |u|² + |v|²

    Koren et al. 2009, Matrix Factorization Techniques for Recommender Systems, eq. 5. The dot product that scores a
    film for a user is the one that scores a key for a query. Costs O(d) for a rating.
    """

    width: Size = 2  # features
    rounds: Size = 200  # over all ratings
    batch: Size = 64  # ratings of a step
    lr: Positive = 0.03  # of Adam
    decay: Number = 0.001  # of features, so that few ratings do not make large ones
    seed: Seed = 0

    def learn(self, ratings: Iterable[Rating]) -> Recommender:
        """Features of the users and items of these ratings."""
        held = list(ratings)
        users = numbered((user for user, _, _ in held), "rating")
        items = numbered((item for _, item, _ in held), "rating")
        pairs = torch.tensor([(users[user], items[item]) for user, item, _ in held])
        wanted = torch.tensor([rating for _, _, rating in held])
        torch.manual_seed(self.seed)
        draw, table = np.random.default_rng(self.seed), TwoTables(len(users), len(items), self.width, shifts=True)
        optimizer = torch.optim.Adam(table.parameters(), lr=self.lr)
        for _ in range(self.rounds):
            for part in batches(len(held), self.batch, draw):
                optimizer.zero_grad()
                loss: Tensor = rating_loss(table, pairs[part], wanted[part], self.decay) / len(part)
                torch.autograd.backward(loss)
                optimizer.step()
        return Recommender(users, items, table.eval())


class Recommender:
    """Users, items and their features."""

    def __init__(self, users: dict[str, int], items: dict[str, int], table: TwoTables) -> None:
        self.users, self.items, self.table = users, items, table

    @torch.no_grad()
    def rate(self, user: str, item: str) -> float:
        """How much a user is expected to like an item."""
        a, b = number_of(user, self.users, "the user"), number_of(item, self.items, "the item")
        return float(self.table(torch.tensor(a), torch.tensor(b)))

    def best(self, user: str, count: int = 3, beside: Iterable[str] = ()) -> list[tuple[str, float]]:
        """The items that a user is expected to like most, but for those `beside`."""
        known = set(beside)
        rated = [(item, self.rate(user, item)) for item in self.items if item not in known]
        return sorted(rated, key=lambda each: -each[1])[:count]


def rating_loss(table: TwoTables, pairs: Tensor, wanted: Tensor, decay: float) -> Tensor:
    """The squared errors of these ratings, summed, and what their features cost. [P, 2] and [P]"""
    a, b = pairs.unbind(1)
    size: Tensor = table.left(a).square().sum() + table.right(b).square().sum()
    error: Tensor = (wanted - table(a, b)).square().sum()
    return error + decay * size
