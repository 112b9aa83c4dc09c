"""Which head resolves "it"? The dog didn't cross the street because it was too tired, or because it was too wide.

With all-MiniLM on this machine its heads are asked; else a small model learns what "it" stands for. Heads are named whose
"it" looks away from the dog and at the street.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

import heed
from heed.mixers import Attention
from heed.models import Encoder
from heed.parts.feedforward import Absent
from heed.parts.masks import Whole
from heed.parts.positions import Learned
from heed.pipelines import Inspected
from heed.views.pairs import word

ANIMALS, PLACES = "dog cat fox hen cow pig".split(), "street river bridge field track ditch".split()
OF_ANIMALS, OF_PLACES = "tired weak slow old".split(), "wide long deep muddy".split()
WORDS = "the didn't cross because it was too".split() + ANIMALS + PLACES + OF_ANIMALS + OF_PLACES
SENTENCE, IT = "the {} didn't cross the {} because it was too {}", 7
MINILM = "sentence-transformers/all-MiniLM-L6-v2"


def ids(text: str) -> list[int]:
    return [WORDS.index(name) for name in text.split()]


def learnt() -> heed.Mixer[tuple[object, ...]]:
    """A model that has learnt to say at "it" which word it stands for."""
    parts = {"mixer": Attention.Config(heads=4, mask=Whole()), "feedforward": Absent.Config()}
    model = Encoder.Config(
        vocabulary=len(WORDS), width=32, depth=2, position=Learned.Config(length=16), **parts
    ).build()
    head = torch.nn.Linear(32, len(WORDS))
    every = [(a, p, w) for a in ANIMALS for p in PLACES for w in (*OF_ANIMALS, *OF_PLACES)]
    tokens = torch.tensor([ids(SENTENCE.format(*one)) for one in every])
    meant = torch.tensor([WORDS.index(a if w in OF_ANIMALS else p) for a, p, w in every])
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=5e-3)
    for _ in range(120):
        some = torch.randint(len(every), (64,))
        loss = F.cross_entropy(head(model.encode(tokens[some]).parts[0][:, IT]), meant[some])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"no all-MiniLM here: a small model has learnt it, loss {loss.item():.3f}")
    return model.eval()


torch.manual_seed(0)
tired, wide = (SENTENCE.format("dog", "street", word) for word in ("tired", "wide"))
try:
    found = heed.see(heed.load(MINILM, offline=True), tired, pair=wide, of="it")
except heed.HeedError:
    first, second = (Inspected(torch.tensor([ids(text)]), tuple(text.split())) for text in (tired, wide))
    found = heed.see(learnt(), first, pair=second, of="it")
moves = []
for before, after in zip(found.layers, found.others, strict=True):
    names = [word(name) for name in before.rows]
    change = (after.weights - before.weights)[:, names.index("it")]
    moved = torch.minimum(-change[:, names.index("dog")], change[:, names.index("street")])
    moves += [(float(share), before.number, head) for head, share in zip(before.heads, moved, strict=True)]
for share, layer, head in sorted(moves, reverse=True)[:3]:
    print(f"layer {layer}, head {head}: {share:.0%} of what it looks at moves from dog to street")
