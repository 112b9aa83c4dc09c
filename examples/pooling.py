"""Nadaraya-Watson regression: attention pooling with a kernel whose width is learnt (Nadaraya 1964, Watson 1964)."""

from __future__ import annotations

import torch

from heed.parts.scores import Gaussian, pool

torch.manual_seed(0)
place = torch.sort(5 * torch.rand(50, 1), dim=0).values  # keys
height = 2 * place.sin() + place.sqrt() + 0.3 * torch.randn(50, 1)  # values

score = Gaussian.Config(width=1.0, learned=True).build(query_size=1, key_size=1)
others = ~torch.eye(50, dtype=torch.bool)  # every point is predicted from all others
optimiser = torch.optim.Adam(score.parameters(), lr=0.1)
for step in range(61):
    predicted, _ = pool(score, place, place, height, others)
    loss = (predicted - height).square().mean()
    if step % 20 == 0:
        print(f"step {step:2d}  mean squared error {loss.item():.3f}")
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
