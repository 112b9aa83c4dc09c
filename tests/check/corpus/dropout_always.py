import torch
from torch import nn
import torch.nn.functional as F


def attention(query, key, value, dropout_p=0.1, training=True):
    """[batch, heads, tokens, channels]"""
    w = torch.softmax(query @ key.transpose(-2, -1) / query.size(-1) ** 0.5, dim=-1)
    w = F.dropout(w, p=dropout_p, training=training)
    return w @ value


class BayesByAccident(nn.Module):
    def __init__(self, dim, heads, attn_dropout=0.1):
        super().__init__()
        self.heads, self.attn_dropout = heads, attn_dropout
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        return self.out(attention(q, k, v, self.attn_dropout).transpose(1, 2).flatten(2))
