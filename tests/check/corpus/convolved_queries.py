import torch
from torch import nn
import torch.nn.functional as F


class PrimerAttention(nn.Module):
    """A causal depthwise convolution over three places for queries, keys and values."""

    def __init__(self, n_embd, n_head):
        super().__init__()
        self.n_head = n_head
        self.qkv = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.conv = nn.Conv1d(3 * n_embd, 3 * n_embd, kernel_size=3, groups=3 * n_embd)
        self.proj = nn.Linear(n_embd, n_embd, bias=False)

    def forward(self, x):
        B, T, C = x.shape
        z = F.pad(self.qkv(x).transpose(1, 2), (2, 0))
        q, k, v = self.conv(z).transpose(1, 2).chunk(3, dim=-1)
        q, k, v = (y.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(B, T, C))
