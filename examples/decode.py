"""One decoding loop for any mixer: prefill a ragged batch of prompts, then one token at a time."""

from __future__ import annotations

import torch

import heed
from heed.mixers import Attention
from heed.models import Decoder
from heed.parts.masks import Causal, Window

torch.manual_seed(0)
layers = (Attention.Config(heads=4, mask=Window(back=7)), Attention.Config(heads=4, kv_heads=1, mask=Causal()))
model = Decoder.Config(vocabulary=50, width=64, depth=4, mixer=layers).build().eval()

lengths = torch.tensor([6, 3])
prompts = torch.randint(50, (2, 6))  # the second row is padded at its end
with torch.no_grad():
    logits, state = model(prompts, heed.Where.ragged(lengths), model.start(rows=2))
    token = logits[torch.arange(2), lengths - 1].argmax(-1, keepdim=True)
    generated = [token]
    for step in range(8):
        where = heed.Where.ragged([1, 1], start=lengths + step)
        logits, state = model(token, where, state)
        token = logits[:, -1].argmax(-1, keepdim=True)
        generated.append(token)
print(torch.cat(generated, 1).tolist())
print(f"{heed.nbytes(state)} bytes of state (KV cache)")
