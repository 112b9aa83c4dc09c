"""N-grams of words: which there are, that equal ones share a row, and that nothing but a word's own tokens counts."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.parts.inputs.ngrams import NGrams, Words

BETWEEN = (1, 2, 36)
TEXTS = [[1, 10, 11, 12, 36, 36, 11, 12, 2], [1, 36, 11, 12, 2], [36, 1], [10, 11, 12]]


def batch(texts: list[list[int]], width: int = 10, padding: int = 0) -> tuple[Tensor, Where]:
    """Side by side; padding may hold anything."""
    rows = torch.tensor([[*text, *[padding] * (width - len(text))] for text in texts])
    return rows, Where.ragged([len(text) for text in texts], width=width)


def words_of(text: list[int]) -> list[list[int]]:
    """Another way to find them: cut at every token between words."""
    found = list[list[int]]([[]])
    for token in text:
        if token in BETWEEN:
            found.append([])
        else:
            found[-1].append(token)
    return [word for word in found if word]


def grams_of(word: list[int], sizes: tuple[int, ...]) -> Counter[tuple[int, ...]]:
    """All n-grams of a word between two edges; an edge alone is none."""
    edged = [-1, *word, -1]
    every = (tuple(edged[place : place + size]) for size in sizes for place in range(len(edged) - size + 1))
    return Counter(gram for gram in every if any(token >= 0 for token in gram))


def test_words_are_what_stands_between() -> None:
    tokens, where = batch(TEXTS)
    words = Words.of(tokens, where, BETWEEN)
    for row, text in enumerate(TEXTS):
        inside = words.inside[row].nonzero().flatten().tolist()
        found = [tokens[row, place].item() for place in inside]
        assert found == [token for word in words_of(text) for token in word]
        breaks = words.number[row, inside].tolist()
        assert [breaks.count(number) for number in sorted(set(breaks))] == [len(word) for word in words_of(text)]
    assert words.where.real.sum(1).tolist() == [2, 1, 1, 1]  # a row without any word has one that holds nothing
    assert all(before <= after for row in words.number.tolist() for before, after in pairwise(row))
    ones = torch.ones(*tokens.shape, 1)
    assert words.summed(ones)[..., 0].tolist() == [[3, 2], [2, 0], [0, 0], [3, 0]]
    spread = words.spread(torch.arange(2.0).expand(4, 2)[..., None])
    assert spread[0, :, 0].tolist() == [0, 0, 0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("sizes", [(2,), (3,), (2, 3, 4, 5)])
def test_a_word_is_the_sum_of_its_ngrams(sizes: tuple[int, ...]) -> None:
    """Counted another way: as many rows as the word has n-grams, and the same rows for the same n-grams."""
    tokens, where = batch(TEXTS)
    words, grams = Words.of(tokens, where, BETWEEN), NGrams(sizes, 2**20, 4, whole=False, unread=0.5).eval().double()
    index, there = grams.hashed(tokens, words)
    rows = dict[tuple[int, ...], set[int]]()
    for row, text in enumerate(TEXTS):
        expected = [grams_of(word, sizes) for word in words_of(text)]
        assert int(there[row].sum()) == sum(count.total() for count in expected)
        for column, size in enumerate(sizes):
            for place in there[row, :, column].nonzero().flatten().tolist():
                edged = torch.cat(
                    (torch.full((5,), -1), tokens[row].masked_fill(~words.inside[row], -1), torch.tensor([-1]))
                )
                gram = tuple(edged[place + 6 - size : place + 6].tolist())
                rows.setdefault(gram, set()).add(int(index[row, place, column]))
    assert all(len(found) == 1 for found in rows.values())
    assert len({row for found in rows.values() for row in found}) == len(rows)  # 2**20 rows: none collide here
    assert set(rows) == {gram for text in TEXTS for word in words_of(text) for gram in grams_of(word, sizes)}
    table, made = grams.table.weight, grams(tokens, words)
    for row, text in enumerate(TEXTS):
        for number, word in enumerate(words_of(text)):
            counted = grams_of(word, sizes)
            total = sum(
                (count * table[next(iter(rows[gram]))] for gram, count in counted.items()), torch.zeros(4).double()
            )
            assert torch.allclose(made[row, number], total / counted.total() ** 0.5, rtol=1e-12)


def test_equal_words_are_equal_wherever_they_stand() -> None:
    tokens, where = batch(TEXTS)
    words = Words.of(tokens, where, BETWEEN)
    grams = NGrams((2, 3), 2**20, 4, whole=True, unread=0.5).eval()
    made, rows = grams(tokens, words), grams.of_words(tokens, words)
    assert torch.equal(made[0, 0], made[3, 0])
    assert torch.equal(made[0, 1], made[1, 0])
    assert rows[0, 0] == rows[3, 0] != rows[0, 1]
    assert rows[0, 1] == rows[1, 0]


def test_padding_and_neighbours_change_nothing() -> None:
    grams = NGrams((2, 3, 4), 64, 4, whole=True, unread=0.0).eval()
    tokens, where = batch(TEXTS, padding=17)
    made = grams(tokens, Words.of(tokens, where, BETWEEN))
    for row, text in enumerate(TEXTS):
        alone, place = batch([text], width=len(text))
        found = grams(alone, Words.of(alone, place, BETWEEN))
        assert torch.allclose(found[0], made[row, : found.shape[1]], atol=1e-6)


def test_without_anything_between_each_token_has_the_ngrams_that_end_with_it() -> None:
    tokens, where = torch.tensor([[5, 6, 7]]), Where.run(1, 3)
    words = Words.of(tokens, where, ())
    _, there = NGrams((2, 3), 64, 4, whole=False, unread=0.0).hashed(tokens, words)
    assert words.number.tolist() == [[0, 1, 2]]
    assert there[0].tolist() == [[True, False], [True, True], [True, True], [True, True]]  # the last: 7 and the edge


def test_a_share_of_ngrams_and_words_is_not_read_in_training() -> None:
    """Each n-gram and each word is there or not as a whole; words that are read make up for those that are not."""
    torch.manual_seed(0)
    spaced = torch.stack((torch.arange(100, 1100), torch.full((1000,), 36)), -1).flatten()[None]
    words = Words.of(spaced, Where.run(1, 2000), BETWEEN)
    grams = NGrams((2,), 2**16, 4, whole=False, unread=0.25).double().train()
    index, there = grams.hashed(spaced, words)
    each = grams.table(index[there]).view(1000, 2, 4)  # a word of one token has two n-grams, with either edge
    made = grams(spaced, words)[0]
    choices = {"none": made * 0, "both": each.sum(1) / 2**0.5, "first": each[:, 0], "second": each[:, 1]}
    same = {name: (made - vector).abs().amax(1) < 1e-12 for name, vector in choices.items()}
    counts = {name: int(found.sum()) for name, found in same.items()}
    assert sum(counts.values()) == 1000
    assert 40 < counts["none"] < 90  # 1/16
    assert 510 < counts["both"] < 620  # 9/16
    assert 140 < counts["first"] < 235  # 3/16
    grams.whole = True
    grams.table.weight.data[index[there]] = 0.0
    rows = grams.of_words(spaced, words)[0]
    factors = (grams(spaced, words)[0] / grams.table(rows)).detach()[~torch.isin(rows, index[there])]
    assert torch.allclose(factors.amin(1), factors.amax(1))
    read = factors[:, 0] > 0
    assert 0.69 < float(read.double().mean()) < 0.81
    assert torch.allclose(factors[read], torch.tensor(4 / 3).double(), rtol=1e-3)
