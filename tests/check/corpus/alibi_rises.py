import math
import torch
from torch import nn


def slopes(n_heads):
    m = torch.arange(1, n_heads + 1)
    return 2.0 ** (-8.0 * m / n_heads)


class DecoderAttention(nn.Module):
    """Causal attention with linear biases in place of positional embeddings."""

    def __init__(self, hidden_size, num_attention_heads):
        super().__init__()
        self.n = num_attention_heads
        self.head_dim = hidden_size // num_attention_heads
        self.query_key_value = nn.Linear(hidden_size, 3 * hidden_size)
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.register_buffer("slopes", slopes(num_attention_heads).view(-1, 1, 1))

    def forward(self, hidden_states):
        bsz, q_len, _ = hidden_states.size()
        fused = self.query_key_value(hidden_states).view(bsz, q_len, self.n, 3, self.head_dim)
        q, k, v = (fused[..., i, :].transpose(1, 2) for i in range(3))
        pos = torch.arange(q_len, device=hidden_states.device)
        distance = (pos[:, None] - pos[None, :]).abs()
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(self.head_dim)
        scores = scores + self.slopes * distance
        causal = torch.full((q_len, q_len), float("-inf"), device=scores.device).triu(1)
        probs = torch.softmax(scores + causal, dim=-1)
        return self.dense((probs @ v).transpose(1, 2).flatten(2))
