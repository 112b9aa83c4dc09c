import torch
from torch import nn


def rope_half(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def rope_interleaved(x, cos, sin):
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)


class RoPEAttention(nn.Module):
    def __init__(self, width, heads, base=10000):
        super().__init__()
        self.heads, self.d = heads, width // heads
        self.to_q = nn.Linear(width, width, bias=False)
        self.to_kv = nn.Linear(width, 2 * width, bias=False)
        self.to_out = nn.Linear(width, width, bias=False)
        self.register_buffer("inv_freq", base ** (-torch.arange(0, self.d, 2) / self.d))

    def forward(self, x):
        B, L, W = x.shape
        k, v = self.to_kv(x).chunk(2, -1)
        q, k, v = (t.reshape(B, L, self.heads, self.d).transpose(1, 2) for t in (self.to_q(x), k, v))
        theta = torch.arange(L, device=x.device)[:, None] * self.inv_freq
        q = rope_half(q, theta.cos(), theta.sin())
        k = rope_interleaved(k, theta.cos(), theta.sin())
        att = (q @ k.transpose(-1, -2) * self.d ** -0.5).softmax(-1)
        return self.to_out((att @ v).transpose(1, 2).reshape(B, L, W))
