import functools
import time

import torch
from torch import nn

CALLS = {}


def timed(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        start = time.perf_counter()
        out = fn(*args, **kwargs)
        CALLS[fn.__qualname__] = CALLS.get(fn.__qualname__, 0.0) + time.perf_counter() - start
        return out
    return wrapper


REGISTRY = {}


def register(name):
    def wrap(cls):
        REGISTRY[name] = cls
        return cls
    return wrap


@functools.lru_cache(maxsize=None)
def triangle(n):
    return torch.ones(n, n).tril().bool()


@register("self_attention")
class RegisteredAttention(nn.Module):
    @timed
    def __init__(self, hparams):
        super().__init__()
        self.n = hparams["num_heads"]
        self.d = hparams["hidden_size"]
        self.qkv = nn.Linear(self.d, self.d * 3, bias=hparams.get("qkv_bias", False))
        self.proj = nn.Linear(self.d, self.d)

    @timed
    def forward(self, x, causal=True):
        q, k, v = self.qkv(x).reshape(*x.shape[:2], 3, self.n, -1).permute(2, 0, 3, 1, 4).unbind(0)
        w = (q @ k.mT) * k.size(-1) ** -0.5
        if causal:
            w = w.masked_fill(~triangle(x.size(1)), float("-inf"))
        return self.proj((w.softmax(-1) @ v).permute(0, 2, 1, 3).flatten(2))


@torch.jit.script
def scripted_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor):
    scores = torch.matmul(query, key.transpose(-2, -1)) / float(query.size(-1)) ** 0.5
    return torch.matmul(torch.softmax(scores, dim=-1), value)
