import torch
import torch.nn as nn
from functools import partial

final_init = partial(nn.Linear, bias=True)


class GatedSelfAttention(nn.Module):
    """Row-wise, gated: out = W_o (sigmoid(g) * softmax(q k) v)"""

    def __init__(self, c_in: int, c_hidden: int, no_heads: int):
        super().__init__()
        self.c_hidden, self.no_heads = c_hidden, no_heads
        for name in ("linear_q", "linear_k", "linear_v", "linear_g"):
            setattr(self, name, nn.Linear(c_in, c_hidden * no_heads, bias=name.endswith("g")))
        self.linear_o = final_init(c_hidden * no_heads, c_in)
        self.softmax = nn.Softmax(dim=-2)

    def forward(self, m):
        q, k, v, g = (getattr(self, f"linear_{n}")(m) for n in "qkvg")
        q, k, v = (x.view(*x.shape[:-1], self.no_heads, self.c_hidden).transpose(-2, -3) for x in (q, k, v))
        a = torch.matmul(q, k.transpose(-1, -2)) * self.c_hidden ** -0.5
        a = self.softmax(a)
        o = torch.matmul(a, v).transpose(-2, -3)
        o = o.reshape(*o.shape[:-2], -1) * torch.sigmoid(g)
        return self.linear_o(o)
