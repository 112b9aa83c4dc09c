"""Look inside: which token does each token attend to? Attention weights of a small trained model as a text heat map.

The model learns to repeat: of "d b a c | d b a c" the second half follows from the first. To know what comes next it
must look back at what came next the first time, so the map shows a line beside the diagonal.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

import heed
from heed.mixers import Attention
from heed.models import Decoder
from heed.parts.positions import Learned
from heed.show.heatmap import text_map

LETTERS, HALF = "abcdefghij|", 6
torch.manual_seed(0)


def batch(rows: int) -> torch.Tensor:
    """Random letters, a bar, and the same letters again."""
    half = torch.randint(10, (rows, HALF))
    return torch.cat((half, torch.full((rows, 1), 10), half), 1)


model = Decoder.Config(
    vocabulary=11,
    width=32,
    depth=1,
    mixer=Attention.Config(heads=1),
    position=Learned.Config(length=2 * HALF + 1),
).build()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(61):
    tokens = batch(64)
    logits, _ = model(tokens, heed.Where.run(*tokens.shape))
    loss = F.cross_entropy(logits[:, HALF:-1].flatten(0, 1), tokens[:, HALF + 1 :].flatten())
    if step % 20 == 0:
        print(f"step {step:2d}   loss {loss.item():.2f}")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

tokens = batch(1)
with torch.no_grad(), heed.look(model, "stack.blocks.*.mixer.weights") as seen:
    model(tokens, heed.Where.run(*tokens.shape))
weights = seen["stack.blocks.0.mixer.weights"][0][0, 0]  # of the first row and head: [queries, keys]
names = [LETTERS[token] for token in tokens[0]]
print(text_map(weights[HALF:-1].tolist(), names[HALF:-1], names))
