import torch
from torch import nn
from collections import OrderedDict


class CvTAttention(nn.Module):
    """Queries, keys and values by depthwise convolutions over a map; forward(x, h, w) with tokens in rows."""

    def __init__(self, dim_in, dim_out, num_heads, qkv_bias=False, attn_drop=0., proj_drop=0., kernel_size=3,
                 padding_kv=1, padding_q=1, stride_kv=1, stride_q=1):
        super().__init__()
        self.dim, self.num_heads = dim_out, num_heads
        self.scale = (dim_out // num_heads) ** -0.5
        self.conv_proj_q = self._build(dim_in, kernel_size, padding_q, stride_q)
        self.conv_proj_k = self._build(dim_in, kernel_size, padding_kv, stride_kv)
        self.conv_proj_v = self._build(dim_in, kernel_size, padding_kv, stride_kv)
        self.proj_q = nn.Linear(dim_in, dim_out, bias=qkv_bias)
        self.proj_k = nn.Linear(dim_in, dim_out, bias=qkv_bias)
        self.proj_v = nn.Linear(dim_in, dim_out, bias=qkv_bias)
        self.attn_drop, self.proj, self.proj_drop = nn.Dropout(attn_drop), nn.Linear(dim_out, dim_out), nn.Dropout(proj_drop)

    def _build(self, dim_in, kernel_size, padding, stride):
        return nn.Sequential(OrderedDict([
            ("conv", nn.Conv2d(dim_in, dim_in, kernel_size=kernel_size, padding=padding, stride=stride, bias=False, groups=dim_in)),
            ("bn", nn.BatchNorm2d(dim_in)),
        ]))

    def forward(self, x, h, w):
        b, n, c = x.shape
        assert n == h * w
        image = x.transpose(1, 2).reshape(b, c, h, w)
        flat = lambda t: t.flatten(2).transpose(1, 2)
        q, k, v = (flat(conv(image)) for conv in (self.conv_proj_q, self.conv_proj_k, self.conv_proj_v))
        split = lambda t: t.reshape(b, t.shape[1], self.num_heads, -1).transpose(1, 2)
        q, k, v = split(self.proj_q(q)), split(self.proj_k(k)), split(self.proj_v(v))
        attn = self.attn_drop(torch.softmax(torch.einsum("bhlk,bhtk->bhlt", q, k) * self.scale, dim=-1))
        x = torch.einsum("bhlt,bhtv->bhlv", attn, v).transpose(1, 2).reshape(b, n, -1)
        return self.proj_drop(self.proj(x))
