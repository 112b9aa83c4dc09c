from typing import Callable, Optional, Tuple

import torch
import torch.nn as nn


def residual(fn):
    return lambda x, *a: x + fn(x, *a)


class MixerBlock(nn.Module):
    """The mixer and the activation are given by whoever builds it."""

    def __init__(self, dim: int, mixer: Callable[[int], nn.Module], activation: Callable = torch.relu,
                 sizes: Tuple[int, int] = (40, 40)):
        super().__init__()
        self.mixer = mixer(dim)
        self.norm_1, self.norm_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.up, self.mid, self.down = nn.Linear(dim, sizes[0]), nn.Linear(*sizes), nn.Linear(sizes[1], dim)
        self.activation = activation

    def forward(self, x):
        x = residual(lambda t: self.mixer(self.norm_1(t)))(x)
        return residual(lambda t: self.down(self.activation(self.mid(self.activation(self.up(self.norm_2(t)))))))(x)


class PluggedAttention(nn.Module):
    def __init__(self, dim: int, heads: int, softmax: nn.Module = nn.Softmax(dim=-1), norm_layer=nn.LayerNorm):
        super().__init__()
        self.heads, self.softmax, self.norm = heads, softmax, norm_layer(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        return self.out((self.softmax(q @ k.transpose(-1, -2) * (d // self.heads) ** -0.5) @ v).transpose(1, 2).flatten(2))
