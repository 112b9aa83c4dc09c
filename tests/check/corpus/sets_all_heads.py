import math
import torch
from torch import nn


class SetAttentionBlock(nn.Module):
    """Self-attention over the elements of a set; heads are stacked along the batch."""

    def __init__(self, input_dim, output_dim, n_heads):
        super().__init__()
        self.output_dim, self.n_heads = output_dim, n_heads
        self.q, self.k, self.v = nn.Linear(input_dim, output_dim), nn.Linear(input_dim, output_dim), nn.Linear(input_dim, output_dim)

    def forward(self, X):
        part = self.output_dim // self.n_heads
        stack = lambda t: torch.cat(t.split(part, dim=-1), dim=0)
        Q, K, V = stack(self.q(X)), stack(self.k(X)), stack(self.v(X))
        A = torch.softmax(Q.bmm(K.transpose(1, 2)) / math.sqrt(self.output_dim), dim=2)
        return torch.cat(A.bmm(V).split(X.size(0), dim=0), dim=-1)
