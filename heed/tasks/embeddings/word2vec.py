"""word2vec (Mikolov et al. 2013): vectors that tell which words stand near, by skip-gram with negative samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...core.config import Config, Positive, Seed, Size
from ...core.errors import InputError
from .dot_products import TwoTables, batches, number_of, numbered

FLAT = 0.75  # the power of a word's frequency by which it is drawn as a negative sample; the paper's


class Word2Vec(Config):
    """A word's vector is learnt by telling a word that stands near it from words that were drawn at random.

        L = - Σ_(c, o) ( log σ(u_c·v_o) + Σ_k log σ(-u_c·v_n_k) ),     o within `window` words of c,  n_k ~ frequency^¾

    Mikolov et al. 2013, Distributed Representations of Words and Phrases, eq. 4. Before attention this was how a word
    got its vector: one for all its meanings, whatever the sentence. Costs O(d·(1 + negatives)) for a pair.
    """

    width: Size = 32  # channels of a vector
    window: Size = 2  # words on each side that count as near
    negatives: Size = 5  # words drawn at random beside each that is near
    rounds: Size = 20  # over all pairs
    batch: Size = 256  # pairs of a step
    lr: Positive = 0.02  # of Adam
    seed: Seed = 0

    def learn(self, texts: Iterable[str]) -> WordVectors:
        """Vectors of the words of these texts; words are what white space separates."""
        words = [text.split() for text in texts]
        numbers = numbered((word for text in words for word in text), "word")
        pairs = near([[numbers[word] for word in text] for text in words], self.window)
        if not len(pairs):
            raise InputError("no word stands beside another one; give texts of two words or more")
        counts = Counter(word for text in words for word in text)
        share = torch.tensor([counts[word] for word in numbers], dtype=torch.float64) ** FLAT
        torch.manual_seed(self.seed)
        draw, table = np.random.default_rng(self.seed), TwoTables(len(numbers), len(numbers), self.width, shifts=False)
        optimizer = torch.optim.Adam(table.parameters(), lr=self.lr)
        for _ in range(self.rounds):
            for part in batches(len(pairs), self.batch, draw):
                centre, other = pairs[part].unbind(1)
                drawn = torch.multinomial(share, len(part) * self.negatives, replacement=True).view(len(part), -1)
                optimizer.zero_grad()
                loss: Tensor = skip_gram(table, centre, other, drawn) / len(part)
                torch.autograd.backward(loss)
                optimizer.step()
        return WordVectors(numbers, table.left.weight.detach())


class WordVectors:
    """Words and their vectors."""

    def __init__(self, numbers: dict[str, int], vectors: Tensor) -> None:
        self.numbers, self.vectors = numbers, vectors

    def __getitem__(self, word: str) -> Tensor:
        return self.vectors[number_of(word, self.numbers, "the word")]

    def nearest(self, word: str, count: int = 3) -> list[tuple[str, float]]:
        """The words whose vectors point most nearly the same way, with their cosines."""
        own = number_of(word, self.numbers, "the word")
        alike = F.cosine_similarity(self.vectors[own][None], self.vectors)
        alike[own] = -torch.inf
        best = alike.topk(min(count, len(self.numbers) - 1))
        names = list(self.numbers)
        return [(names[place], value) for value, place in zip(best.values.tolist(), best.indices.tolist(), strict=True)]


def near(texts: Sequence[Sequence[int]], window: int) -> Tensor:
    """Every word with each that stands within the window, in both directions. [pairs, 2]"""
    found = [
        (text[i], text[j])
        for text in texts
        for i in range(len(text))
        for j in range(max(0, i - window), min(len(text), i + window + 1))
        if i != j
    ]
    return torch.tensor(found, dtype=torch.long).view(-1, 2)


def skip_gram(table: TwoTables, centre: Tensor, other: Tensor, drawn: Tensor) -> Tensor:
    """The loss of these pairs, summed. [P], [P] and [P, negatives]"""
    right, wrong = table(centre, other), table(centre[:, None], drawn)
    return F.softplus(-right).sum() + F.softplus(wrong).sum()  # -log σ(s) = softplus(-s)
