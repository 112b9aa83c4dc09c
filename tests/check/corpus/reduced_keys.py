import torch
import torch.nn as nn


class SpatialReductionAttention(nn.Module):
    def __init__(self, dim, num_heads=8, qkv_bias=False, sr_ratio=1):
        super().__init__()
        self.num_heads, self.scale, self.sr_ratio = num_heads, (dim // num_heads) ** -0.5, sr_ratio
        self.q, self.kv, self.proj = nn.Linear(dim, dim, bias=qkv_bias), nn.Linear(dim, dim * 2, bias=qkv_bias), nn.Linear(dim, dim)
        if sr_ratio > 1:
            self.sr, self.norm = nn.Conv2d(dim, dim, kernel_size=sr_ratio, stride=sr_ratio), nn.LayerNorm(dim)

    def forward(self, x, H, W):
        B, N, C = x.shape
        q = self.q(x).reshape(B, N, self.num_heads, C // self.num_heads).permute(0, 2, 1, 3)
        if self.sr_ratio > 1:
            x = self.norm(self.sr(x.permute(0, 2, 1).reshape(B, C, H, W)).reshape(B, C, -1).permute(0, 2, 1))
        k, v = self.kv(x).reshape(B, -1, 2, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
        attn = ((q @ k.transpose(-2, -1)) * self.scale).softmax(dim=-1)
        return self.proj((attn @ v).transpose(1, 2).reshape(B, N, C))


class GatedAttentionUnit(nn.Module):
    """One head, squared ReLU, a gate."""

    def __init__(self, hidden_size, qk_dim=32, expansion=2):
        super().__init__()
        e = hidden_size * expansion
        self.norm = nn.LayerNorm(hidden_size)
        self.to_uv, self.to_base = nn.Linear(hidden_size, 2 * e), nn.Linear(hidden_size, qk_dim)
        self.gamma, self.beta = nn.Parameter(torch.rand(2, qk_dim)), nn.Parameter(torch.zeros(2, qk_dim))
        self.to_out = nn.Linear(e, hidden_size)

    def forward(self, x):
        n = x.shape[1]
        y = self.norm(x)
        u, v = nn.functional.silu(self.to_uv(y)).chunk(2, -1)
        q, k = (nn.functional.silu(self.to_base(y))[..., None, :] * self.gamma + self.beta).unbind(-2)
        a = torch.relu(q @ k.transpose(-1, -2) / n) ** 2
        return x + self.to_out(u * (a @ v))
