import torch
import torch.nn as nn
import torch.nn.functional as F


class FastAttention(nn.Module):
    """Uses the fused kernel where torch has one."""

    def __init__(self, hidden_size, num_attention_heads, use_flash=True):
        super().__init__()
        self.nh = num_attention_heads
        self.use_flash = use_flash
        self.qkv = nn.Linear(hidden_size, hidden_size * 3)
        self.dense = nn.Linear(hidden_size, hidden_size)

    def forward(self, hidden_states, attention_mask=None):
        b, s, h = hidden_states.shape
        q, k, v = self.qkv(hidden_states).view(b, s, 3, self.nh, h // self.nh).permute(2, 0, 3, 1, 4)
        if self.use_flash:
            ctx = F.scaled_dot_product_attention(q, k, v)
        else:
            scores = q @ k.transpose(-2, -1) / (h // self.nh) ** 0.5
            if attention_mask is not None:
                scores = scores.masked_fill(attention_mask[:, None, None, :] == 0, torch.finfo(scores.dtype).min)
            ctx = scores.softmax(-1) @ v
        return self.dense(ctx.transpose(1, 2).reshape(b, s, h))
