import itertools
import torch
from torch import nn


class LevitAttention(nn.Module):
    def __init__(self, dim, key_dim, num_heads=8, attn_ratio=4, activation=None, resolution=14):
        super().__init__()
        self.num_heads, self.scale, self.key_dim = num_heads, key_dim ** -0.5, key_dim
        self.nh_kd = nh_kd = key_dim * num_heads
        self.d = int(attn_ratio * key_dim)
        self.dh = int(attn_ratio * key_dim) * num_heads
        self.qkv = nn.Linear(dim, self.dh + nh_kd * 2)
        self.proj = nn.Sequential(nn.Hardswish(), nn.Linear(self.dh, dim))
        points = list(itertools.product(range(resolution), range(resolution)))
        N = len(points)
        attention_offsets, idxs = {}, []
        for p1 in points:
            for p2 in points:
                offset = (abs(p1[0] - p2[0]), abs(p1[1] - p2[1]))
                attention_offsets.setdefault(offset, len(attention_offsets))
                idxs.append(attention_offsets[offset])
        self.attention_biases = nn.Parameter(torch.zeros(num_heads, len(attention_offsets)))
        self.register_buffer("attention_bias_idxs", torch.LongTensor(idxs).view(N, N))

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(x).view(B, N, self.num_heads, -1).split([self.key_dim, self.key_dim, self.d], dim=3)
        q, k, v = q.permute(0, 2, 1, 3), k.permute(0, 2, 1, 3), v.permute(0, 2, 1, 3)
        attn = q @ k.transpose(-2, -1) * self.scale + self.attention_biases[:, self.attention_bias_idxs]
        x = (attn.softmax(dim=-1) @ v).transpose(1, 2).reshape(B, N, self.dh)
        return self.proj(x)
