"""Which head resolves "it"? The dog didn't cross the street because it was too tired, or because it was too wide.

With all-MiniLM on this machine its heads are asked; else a small model learns that who is tired stands first, what is
wide second. Heads are named whose "it" looks away from the dog and at the street.
"""

import torch
import torch.nn.functional as F

import heed
from heed.mixers import Attention
from heed.models import Encoder
from heed.parts.feedforward import Absent
from heed.parts.masks import Whole, Window
from heed.parts.positions import Learned
from heed.pipelines import Inspected
from heed.views.pairs import word

NOUNS = ["dog", "cat", "fox", "hen", "street", "river", "bridge", "field"]
FIRST, SECOND = ["tired", "weak", "slow", "old"], ["wide", "long", "deep", "muddy"]
WORDS = ["the", "didn't", "cross", "because", "it", "was", "too", *NOUNS, *FIRST, *SECOND]
SENTENCE, IT = "the {} didn't cross the {} because it was too {}", 7


def learnt() -> Encoder:
    """A model that has learnt to say at "it" which word it stands for."""
    torch.manual_seed(0)
    near, far = (Attention.Config(heads=4, mask=mask) for mask in (Window(back=3, ahead=3), Whole()))
    place, mixer = Learned.Config(length=16), (near, far)  # "it" hears of "wide" first, then looks for what is meant
    shape = Encoder.Config(vocabulary=23, width=32, depth=2, mixer=mixer, position=place, feedforward=Absent.Config())
    model, head = shape.build(), torch.nn.Linear(32, 23)
    every = [(a, b, w) for a in NOUNS for b in NOUNS if a != b for w in FIRST + SECOND]
    tokens = torch.tensor([[WORDS.index(name) for name in SENTENCE.format(*one).split()] for one in every])
    meant = torch.tensor([WORDS.index(a if w in FIRST else b) for a, b, w in every])
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=1e-2)
    for _ in range(200):
        some = torch.randint(len(every), (64,))
        optimizer.zero_grad()
        loss = F.cross_entropy(head(model.encode(tokens[some]).parts[0][:, IT]), meant[some])
        loss.backward()
        optimizer.step()
    return model.eval()


tired, wide = (SENTENCE.format("dog", "street", name) for name in ("tired", "wide"))
try:
    found = heed.see(heed.load("sentence-transformers/all-MiniLM-L6-v2", offline=True), tired, pair=wide, of="it")
except heed.HeedError:
    texts = (tuple(text.split()) for text in (tired, wide))
    first, second = (Inspected(torch.tensor([[WORDS.index(name) for name in text]]), text) for text in texts)
    print("no all-MiniLM here: a small model learns it")
    found = heed.see(learnt(), first, pair=second, of="it")
moves: list[tuple[float, int, int]] = []
for before, after in zip(found.layers, found.others, strict=True):
    names = [word(name) for name in before.rows]
    change = (after.weights - before.weights)[:, names.index("it")]
    moved = torch.minimum(-change[:, names.index("dog")], change[:, names.index("street")])
    moves += [(float(share), before.number, head) for head, share in zip(before.heads, moved, strict=True)]
for share, layer, head in sorted(moves, reverse=True)[:3]:
    print(f"layer {layer}, head {head}: {share:.0%} of what it looks at moves from dog to street")
