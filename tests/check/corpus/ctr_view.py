import torch
from torch import nn


class FieldInteraction(nn.Module):
    """Interacting layer of a click-through-rate model: every field of the sample is a token."""

    def __init__(self, input_dim, attention_dim=24, num_heads=4, use_residual=True):
        super(FieldInteraction, self).__init__()
        self.head_dim = attention_dim // num_heads
        self.num_heads = num_heads
        self.use_residual = use_residual
        self.W_q = nn.Linear(input_dim, attention_dim, bias=False)
        self.W_k = nn.Linear(input_dim, attention_dim, bias=False)
        self.W_v = nn.Linear(input_dim, attention_dim, bias=False)
        self.W_res = nn.Linear(input_dim, attention_dim, bias=False) if use_residual else None

    def forward(self, X):
        residual = X
        query, key, value = self.W_q(X), self.W_k(X), self.W_v(X)
        batch_size = query.size(0)
        query = query.view(batch_size * self.num_heads, -1, self.head_dim)
        key = key.view(batch_size * self.num_heads, -1, self.head_dim)
        value = value.view(batch_size * self.num_heads, -1, self.head_dim)
        scores = torch.bmm(query, key.transpose(1, 2)) / self.head_dim ** 0.5
        output = torch.bmm(scores.softmax(dim=-1), value)
        output = output.view(batch_size, -1, self.num_heads * self.head_dim)
        if self.W_res is not None:
            output = output + self.W_res(residual)
        return output.relu()
