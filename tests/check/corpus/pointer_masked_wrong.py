import torch
import torch.nn as nn


class TourAttention(nn.Module):
    """Where to go next: probabilities of the cities that were not visited (mask 1 = visited, hidden); ref [B, N, D], query [B, D]"""

    def __init__(self, hidden_size, C=10):
        super().__init__()
        self.W_query = nn.Linear(hidden_size, hidden_size)
        self.W_ref = nn.Conv1d(hidden_size, hidden_size, 1, 1)
        self.V = nn.Parameter(torch.randn(hidden_size))
        self.C = C

    def forward(self, query, ref, mask=None):
        q = self.W_query(query).unsqueeze(2)
        u = self.C * torch.tanh((self.V[None, :, None] * torch.tanh(q + self.W_ref(ref.transpose(1, 2)))).sum(1))
        if mask is not None:
            u.masked_fill(mask.bool(), float("-inf"))
        return torch.softmax(u, dim=1)
