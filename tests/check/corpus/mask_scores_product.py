import torch
from torch import nn


class GraphTransformerLayer(nn.Module):
    """nodes attend along edges; edges (B, N, N) holds 1 for an edge and 0 for none"""

    def __init__(self, in_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.Q, self.K, self.V, self.O = (nn.Linear(in_dim, in_dim, bias=False) for _ in range(4))

    def forward(self, h, adjacency_mask):
        B, N, D = h.shape
        q, k, v = (f(h).view(B, N, self.num_heads, -1).transpose(1, 2) for f in (self.Q, self.K, self.V))
        score = q @ k.transpose(-1, -2) / (D // self.num_heads) ** 0.5
        score = score * adjacency_mask.unsqueeze(1)
        return self.O((score.softmax(-1) @ v).transpose(1, 2).reshape(B, N, D))
