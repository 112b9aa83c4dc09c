import torch
import torch.nn as nn


class Projected(nn.Module):
    def __init__(self, hidden_size: int, n_heads: int):
        super().__init__()
        self.n_heads = n_heads
        self.query_proj = nn.Linear(hidden_size, hidden_size)
        self.key_proj = nn.Linear(hidden_size, hidden_size)
        self.value_proj = nn.Linear(hidden_size, hidden_size)
        self.out_proj = nn.Linear(hidden_size, hidden_size)

    def forward(self, query, key, value):
        B = query.size(0)
        q = self.query_proj(query).view(B, -1, self.n_heads, query.size(-1) // self.n_heads).transpose(1, 2)
        k = self.key_proj(key).view(B, -1, self.n_heads, key.size(-1) // self.n_heads).transpose(1, 2)
        v = self.value_proj(value).view(B, -1, self.n_heads, value.size(-1) // self.n_heads).transpose(1, 2)
        context = torch.softmax(q @ k.transpose(-2, -1) / q.size(-1) ** 0.5, dim=-1) @ v
        context = context.transpose(1, 2).contiguous().view(B, -1, query.size(-1))
        return context
