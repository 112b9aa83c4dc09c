"""Linear attention: phi(q) (phi(k)^T v), normalised, both ways and causal."""
import torch
from torch import nn
import torch.nn.functional as F


def feature_map(x):
    return F.elu(x) + 1.0


class LinearAttention(nn.Module):
    def __init__(self, dim, heads=4, causal=False, eps=1e-6):
        super().__init__()
        self.heads, self.causal, self.eps = heads, causal, eps
        self.to_qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.to_qkv(x).view(b, n, 3, self.heads, -1).unbind(2)
        q, k = feature_map(q), feature_map(k)
        if self.causal:
            kv = torch.einsum("bnhd,bnhe->bnhde", k, v).cumsum(1)
            z = 1.0 / (torch.einsum("bnhd,bnhd->bnh", q, k.cumsum(1)) + self.eps)
            y = torch.einsum("bnhd,bnhde,bnh->bnhe", q, kv, z)
        else:
            kv = torch.einsum("bnhd,bnhe->bhde", k, v)
            z = 1.0 / (torch.einsum("bnhd,bhd->bnh", q, k.sum(1)) + self.eps)
            y = torch.einsum("bnhd,bhde,bnh->bnhe", q, kv, z)
        return self.to_out(y.reshape(b, n, d))


class EfficientAttention(nn.Module):
    """Softmax of queries over channels, of keys over places; images (n, c, h, w)."""

    def __init__(self, in_channels, key_channels, head_count, value_channels):
        super().__init__()
        self.in_channels = in_channels
        self.key_channels = key_channels
        self.head_count = head_count
        self.value_channels = value_channels
        self.keys = nn.Conv2d(in_channels, key_channels, 1)
        self.queries = nn.Conv2d(in_channels, key_channels, 1)
        self.values = nn.Conv2d(in_channels, value_channels, 1)
        self.reprojection = nn.Conv2d(value_channels, in_channels, 1)

    def forward(self, input_):
        n, _, h, w = input_.size()
        keys = self.keys(input_).reshape((n, self.key_channels, h * w))
        queries = self.queries(input_).reshape(n, self.key_channels, h * w)
        values = self.values(input_).reshape((n, self.value_channels, h * w))
        head_key_channels = self.key_channels // self.head_count
        head_value_channels = self.value_channels // self.head_count
        attended_values = []
        for i in range(self.head_count):
            key = F.softmax(keys[:, i * head_key_channels: (i + 1) * head_key_channels, :], dim=2)
            query = F.softmax(queries[:, i * head_key_channels: (i + 1) * head_key_channels, :], dim=1)
            value = values[:, i * head_value_channels: (i + 1) * head_value_channels, :]
            context = key @ value.transpose(1, 2)
            attended_values.append((context.transpose(1, 2) @ query).reshape(n, head_value_channels, h, w))
        aggregated_values = torch.cat(attended_values, dim=1)
        return self.reprojection(aggregated_values) + input_
