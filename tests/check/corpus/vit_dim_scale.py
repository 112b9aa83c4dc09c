import torch
from torch import nn, einsum


class ViTAttention(nn.Module):
    def __init__(self, dim, heads=8):
        super().__init__()
        self.heads = heads
        self.scale = dim ** -0.5   # paper: sqrt of dim

        self.to_qkv = nn.Linear(dim, dim * 3, bias=False)
        self.to_out = nn.Sequential(nn.Linear(dim, dim), nn.Dropout(0.0))

    def forward(self, x, mask=None):
        b, n, c, h = *x.shape, self.heads
        qkv = self.to_qkv(x).chunk(3, dim=-1)
        q, k, v = map(lambda t: t.reshape(b, n, h, c // h).transpose(1, 2), qkv)
        dots = einsum('bhid,bhjd->bhij', q, k) * self.scale
        if mask is not None:
            assert mask.shape == (b, n), 'mask has incorrect dimensions'
            dots = dots.masked_fill(~mask[:, None, None, :], -torch.finfo(dots.dtype).max)
        attn = dots.softmax(dim=-1)
        out = einsum('bhij,bhjd->bhid', attn, v)
        out = out.transpose(1, 2).reshape(b, n, c)
        return self.to_out(out)
