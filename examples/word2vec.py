"""word2vec: vectors of words from who stands beside whom (Mikolov et al. 2013), by skip-gram with negative samples."""

from __future__ import annotations

import random

from heed.tasks.embeddings.word2vec import Word2Vec

KINDS = {
    "animals": (["cat", "dog", "horse", "cow"], ["eats", "runs", "sleeps"]),
    "fruits": (["apple", "pear", "plum", "cherry"], ["ripens", "falls", "sweetens"]),
}
draw = random.Random(0)
texts = []
for _ in range(300):
    things, deeds = draw.choice(list(KINDS.values()))
    texts.append(f"the {draw.choice(things)} {draw.choice(deeds)}")

vectors = Word2Vec(width=16, window=1, rounds=10).learn(texts)
for word in ("cat", "plum", "runs"):
    print(word, "->", ", ".join(f"{near} {cosine:.2f}" for near, cosine in vectors.nearest(word)))
