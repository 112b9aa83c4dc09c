"""word2vec against its equation, and what it finds in texts of a known shape."""

from __future__ import annotations

import math

import pytest
import torch

from heed.core.errors import InputError
from heed.tasks.embeddings.dot_products import TwoTables
from heed.tasks.embeddings.word2vec import Word2Vec, near, skip_gram


def logistic(score: float) -> float:
    return 1 / (1 + math.exp(-score))


def test_the_loss_is_its_equation() -> None:
    torch.manual_seed(0)
    table = TwoTables(5, 5, 3, shifts=False).double()
    centre, other, drawn = torch.tensor([0, 3]), torch.tensor([1, 4]), torch.tensor([[2, 2], [0, 1]])
    u, v = table.left.weight.tolist(), table.right.weight.tolist()
    total = 0.0
    for c, o, some in zip(centre.tolist(), other.tolist(), drawn.tolist(), strict=True):
        total -= math.log(logistic(sum(a * b for a, b in zip(u[c], v[o], strict=True))))
        for n in some:
            total -= math.log(logistic(-sum(a * b for a, b in zip(u[c], v[n], strict=True))))
    assert math.isclose(skip_gram(table, centre, other, drawn).item(), total, rel_tol=1e-13)


def test_pairs_are_those_within_the_window() -> None:
    found = near([[7, 8, 9], [5]], 1).tolist()
    assert found == [[7, 8], [8, 7], [8, 9], [9, 8]]
    assert len(near([[1, 2, 3, 4]], 2)) == 10


def test_words_that_stand_in_the_same_places_are_near() -> None:
    texts = [f"{thing} {deed}" for thing in ("cat", "dog") for deed in ("eats", "runs")] * 20
    texts += [f"{thing} {deed}" for thing in ("plum", "pear") for deed in ("ripens", "falls")] * 20
    vectors = Word2Vec(width=8, window=1, rounds=60).learn(texts)
    assert [vectors.nearest(word, 1)[0][0] for word in ("cat", "plum", "runs")] == ["dog", "pear", "eats"]
    again = Word2Vec(width=8, window=1, rounds=60).learn(texts)
    assert torch.equal(vectors["cat"], again["cat"])


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="no word to learn from"):
        Word2Vec().learn([])
    with pytest.raises(InputError, match="no word stands beside another"):
        Word2Vec().learn(["alone"])
    with pytest.raises(InputError, match="the word 'cow' was not there while learning; there were 2"):
        Word2Vec(rounds=1).learn(["cat dog"]).nearest("cow")
