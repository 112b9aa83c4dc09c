import torch
import torch.nn as nn
import torch.nn.functional as F


class PointerAttention(nn.Module):
    """decoder states (B, T, H) point at encoder states (B, S, H)"""

    def __init__(self, hidden_size):
        super().__init__()
        self.ref, self.q = nn.Linear(hidden_size, hidden_size), nn.Linear(hidden_size, hidden_size)
        self.v = nn.Parameter(torch.randn(hidden_size))

    def forward(self, query, context):
        u = torch.tanh(self.ref(context)[:, None] + self.q(query)[:, :, None]) @ self.v
        probs = F.softmax(u, dim=1)
        return torch.bmm(probs, context), probs
