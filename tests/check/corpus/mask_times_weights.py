import torch
import torch.nn as nn
import torch.nn.functional as F


class MaskedSelfAttention(nn.Module):
    def __init__(self, n_embed, n_heads, max_len=128):
        super().__init__()
        self.n_heads = n_heads
        self.qkv = nn.Linear(n_embed, n_embed * 3)
        self.proj = nn.Linear(n_embed, n_embed)
        self.register_buffer("mask", torch.tril(torch.ones(max_len, max_len)))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.n_heads, C // self.n_heads).permute(2, 0, 3, 1, 4)
        attn = (q @ k.transpose(-2, -1)) / (C // self.n_heads) ** 0.5
        attn = F.softmax(attn, dim=-1) * self.mask[:T, :T]
        return self.proj((attn @ v).transpose(1, 2).reshape(B, T, C))
