"""A recommender: features of films and users, learnt by dot products from ratings, without being told what they are."""

from __future__ import annotations

import random

from heed.tasks.embeddings.recommend import Recommend

FILMS = {
    "Alien": (5, 1),
    "Heat": (5, 2),
    "Ran": (4, 3),
    "Amelie": (1, 5),
    "Emma": (1, 4),
    "Big": (2, 5),
}  # action, heart
TASTES = {"ann": (1.0, 0.0), "bob": (0.8, 0.2), "cleo": (0.0, 1.0), "dora": (0.1, 0.9), "eve": (0.5, 0.5)}

draw, ratings, hidden = random.Random(0), [], {("ann", "Big"), ("cleo", "Heat"), ("bob", "Alien"), ("dora", "Amelie")}
for user, taste in TASTES.items():
    for film, offers in FILMS.items():
        if (user, film) not in hidden:  # nobody has seen everything
            ratings.append((user, film, sum(a * b for a, b in zip(taste, offers, strict=True)) + draw.gauss(0, 0.1)))

model = Recommend(width=2).learn(ratings)
for user, film in sorted(hidden):
    truth = sum(a * b for a, b in zip(TASTES[user], FILMS[film], strict=True))
    print(f"{user} has not seen {film}: expected {model.rate(user, film):.1f}, would say {truth:.1f}")
