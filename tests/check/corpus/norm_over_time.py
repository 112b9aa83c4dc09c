import torch
from torch import nn


class Norm(nn.Module):
    def __init__(self, channels, eps=1e-5):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(channels))
        self.beta = nn.Parameter(torch.zeros(channels))
        self.eps = eps

    def forward(self, x):
        # written for [B, C, T], where channels are axis 1
        mu = x.mean(1, keepdim=True)
        var = ((x - mu) ** 2).mean(1, keepdim=True)
        return (x - mu) * torch.rsqrt(var + self.eps) * self.gamma + self.beta


class CausalDecoderBlock(nn.Module):
    """x: [B, T, C]"""

    def __init__(self, channels, n_head):
        super().__init__()
        self.ln_1, self.ln_2 = Norm(channels), Norm(channels)
        self.attn = nn.MultiheadAttention(channels, n_head, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels))

    def forward(self, x):
        t = x.shape[1]
        future = torch.triu(torch.ones(t, t, dtype=torch.bool, device=x.device), diagonal=1)
        h = self.ln_1(x)
        x = x + self.attn(h, h, h, attn_mask=future, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))
