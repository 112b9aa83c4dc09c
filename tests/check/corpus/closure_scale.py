import math
import torch
from torch import nn


def scaled_attention(width):
    """gives a function that attends; the scale is worked out once"""
    factor = 1.0 / math.sqrt(width)

    def run(q, k, v):
        return torch.softmax(factor * (q @ k.transpose(-2, -1)), dim=-1) @ v

    return run


class Layer(nn.Module):
    def __init__(self, embedding_size, nheads):
        super().__init__()
        self.nheads = nheads
        self.run = scaled_attention(embedding_size)
        self.q, self.k, self.v, self.o = (nn.Linear(embedding_size, embedding_size) for _ in range(4))

    def forward(self, x):
        cut = lambda t: t.unflatten(-1, (self.nheads, -1)).transpose(1, 2)
        return self.o(self.run(cut(self.q(x)), cut(self.k(x)), cut(self.v(x))).transpose(1, 2).flatten(2))
