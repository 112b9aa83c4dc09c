import torch
import torch.nn as nn
import math


class EncoderAttention(nn.Module):
    """attention_mask: 1 = token, 0 = padding. -10000 as in the first BERT."""

    def __init__(self, hidden_size, num_attention_heads):
        super().__init__()
        self.n, self.d = num_attention_heads, hidden_size // num_attention_heads
        self.query, self.key, self.value = nn.Linear(hidden_size, hidden_size), nn.Linear(hidden_size, hidden_size), nn.Linear(hidden_size, hidden_size)

    def split(self, x):
        return x.view(*x.shape[:2], self.n, self.d).transpose(1, 2)

    def forward(self, hidden_states, attention_mask=None):
        scores = self.split(self.query(hidden_states)) @ self.split(self.key(hidden_states)).transpose(-1, -2) / math.sqrt(self.d)
        if attention_mask is not None:
            scores = scores + (1.0 - attention_mask[:, None, None, :].to(scores)) * -10000.0
        return (scores.softmax(-1) @ self.split(self.value(hidden_states))).transpose(1, 2).flatten(2)
