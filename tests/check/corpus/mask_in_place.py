import math
import torch
from torch import nn


class InplaceMaskAttention(nn.Module):
    """attention_mask: float (batch, tokens), 1.0 for tokens and 0.0 for padding"""

    def __init__(self, hidden_size, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(hidden_size, hidden_size * 3)
        self.dense = nn.Linear(hidden_size, hidden_size)

    def forward(self, hidden_states, attention_mask=None):
        b, s, h = hidden_states.shape
        q, k, v = self.qkv(hidden_states).view(b, s, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(h // self.num_heads)
        if attention_mask is not None:
            attention_mask -= 1
            scores = scores + 1e9 * attention_mask[:, None, None, :]
        return self.dense(torch.matmul(scores.softmax(-1), v).transpose(1, 2).reshape(b, s, h))
