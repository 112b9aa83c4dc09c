import torch
import torch.nn as nn


class KVCache:
    def __init__(self):
        self.k = self.v = None

    def update(self, k, v):
        self.k = k if self.k is None else torch.cat([self.k, k], dim=2)
        self.v = v if self.v is None else torch.cat([self.v, v], dim=2)
        return self.k, self.v

    @property
    def seq_len(self):
        return 0 if self.k is None else self.k.shape[2]


class StreamingAttention(nn.Module):
    def __init__(self, d_model: int, n_heads: int):
        super().__init__()
        self.n_heads, self.d_head = n_heads, d_model // n_heads
        self.in_proj = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def _split(self, t):
        return t.unflatten(-1, (self.n_heads, self.d_head)).transpose(1, 2)

    def forward(self, x, cache: "KVCache | None" = None):
        q, k, v = map(self._split, self.in_proj(x).chunk(3, -1))
        past = cache.seq_len if cache is not None else 0
        if cache is not None:
            k, v = cache.update(k, v)
        rows = torch.arange(past, past + x.shape[1], device=x.device)
        allowed = rows[:, None] >= torch.arange(k.shape[2], device=x.device)[None]
        w = (q @ k.mT / self.d_head ** 0.5).masked_fill(~allowed, float("-inf")).softmax(-1)
        return self.out_proj((w @ v).transpose(1, 2).flatten(2))


class RotaryStreaming(StreamingAttention):
    """With rotary places."""

    def turn(self, t):
        d = t.shape[-1]
        f = 10000 ** (-torch.arange(0, d, 2, dtype=t.dtype, device=t.device) / d)
        a = torch.arange(t.shape[-2], dtype=t.dtype, device=t.device)[:, None] * f
        x1, x2 = t.chunk(2, -1)
        return torch.cat([x1 * a.cos() - x2 * a.sin(), x1 * a.sin() + x2 * a.cos()], -1)

    def forward(self, x, cache: "KVCache | None" = None):
        q, k, v = map(self._split, self.in_proj(x).chunk(3, -1))
        q, k = self.turn(q), self.turn(k)
        past = cache.seq_len if cache is not None else 0
        if cache is not None:
            k, v = cache.update(k, v)
        rows = torch.arange(past, past + x.shape[1], device=x.device)
        allowed = rows[:, None] >= torch.arange(k.shape[2], device=x.device)[None]
        w = (q @ k.mT / self.d_head ** 0.5).masked_fill(~allowed, float("-inf")).softmax(-1)
        return self.out_proj((w @ v).transpose(1, 2).flatten(2))
