import torch
import torch.nn as nn
import torch.nn.functional as F


class BidirectionalAlibiAttention(nn.Module):
    """An encoder's attention; scores fall with the distance on both sides."""

    def __init__(self, hidden_size, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.Wqkv = nn.Linear(hidden_size, 3 * hidden_size)
        self.out = nn.Linear(hidden_size, hidden_size)
        m = 2.0 ** (-8.0 / num_heads * torch.arange(1, num_heads + 1))
        self.register_buffer("m", m[:, None, None], persistent=False)

    def forward(self, hidden_states, attention_mask=None):
        """attention_mask [batch, seq]: 1 for words, 0 for padding"""
        batch, seq, width = hidden_states.shape
        q, k, v = self.Wqkv(hidden_states).view(batch, seq, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        place = torch.arange(seq, device=hidden_states.device)
        bias = -self.m * (place[None, :] - place[:, None]).abs()
        bias = bias.to(q.dtype)[None].expand(batch, -1, -1, -1)
        if attention_mask is not None:
            bias = bias.masked_fill(attention_mask[:, None, None, :] == 0, torch.finfo(q.dtype).min)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.out(y.transpose(1, 2).reshape(batch, seq, width))
