import torch
from torch import nn


def default(v, d):
    return v if v is not None else d


class CrossAttention(nn.Module):
    def __init__(self, query_dim, context_dim=None, heads=8, dim_head=64, dropout=0.0):
        super().__init__()
        inner_dim = dim_head * heads
        context_dim = default(context_dim, query_dim)
        self.scale, self.heads = dim_head ** -0.5, heads
        self.to_q = nn.Linear(query_dim, inner_dim, bias=False)
        self.to_k = nn.Linear(context_dim, inner_dim, bias=False)
        self.to_v = nn.Linear(context_dim, inner_dim, bias=False)
        self.to_out = nn.ModuleList([nn.Linear(inner_dim, query_dim), nn.Dropout(dropout)])

    def head_to_batch_dim(self, t):
        b, n, c = t.shape
        return t.reshape(b, n, self.heads, c // self.heads).permute(0, 2, 1, 3).reshape(b * self.heads, n, -1)

    def batch_to_head_dim(self, t):
        b, n, c = t.shape
        return t.reshape(b // self.heads, self.heads, n, c).permute(0, 2, 1, 3).reshape(b // self.heads, n, -1)

    def forward(self, hidden_states, encoder_hidden_states=None, attention_mask=None):
        src = default(encoder_hidden_states, hidden_states)
        q, k, v = (self.head_to_batch_dim(t) for t in (self.to_q(hidden_states), self.to_k(src), self.to_v(src)))
        scores = torch.bmm(q, k.transpose(-1, -2)) * self.scale
        if attention_mask is not None:
            scores = scores + attention_mask.repeat_interleave(self.heads, dim=0)
        out = self.batch_to_head_dim(torch.bmm(scores.softmax(-1), v))
        for layer in self.to_out:
            out = layer(out)
        return out


class TextImageAttention(nn.Module):
    """Pixels look at words."""

    def __init__(self, query_dim, context_dim, heads=4, dim_head=16):
        super().__init__()
        self.heads, self.scale = heads, context_dim ** -0.5
        self.to_q = nn.Linear(query_dim, heads * dim_head, bias=False)
        self.to_kv = nn.Linear(context_dim, 2 * heads * dim_head, bias=False)
        self.to_out = nn.Linear(heads * dim_head, query_dim)

    def forward(self, x, context, context_mask=None):
        b, n, _ = x.shape
        q = self.to_q(x).view(b, n, self.heads, -1).transpose(1, 2)
        k, v = (t.view(b, context.shape[1], self.heads, -1).transpose(1, 2) for t in self.to_kv(context).chunk(2, -1))
        sim = q @ k.transpose(-1, -2) * self.scale
        if context_mask is not None:
            sim = sim.masked_fill(~context_mask[:, None, None].bool(), -torch.finfo(sim.dtype).max)
        return self.to_out((sim.softmax(-1) @ v).transpose(1, 2).reshape(b, n, -1))
