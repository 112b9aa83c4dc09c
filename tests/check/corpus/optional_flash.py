import math
import torch
from torch import nn

try:
    from flash_attn import flash_attn_func
except ImportError:
    flash_attn_func = None
try:
    from apex.normalization import FusedLayerNorm as LayerNorm
except ImportError:
    from torch.nn import LayerNorm


class MixedAttention(nn.Module):
    def __init__(self, d_attn, nh, p_attn=0.0):
        super().__init__()
        self.nh = nh
        self.norm = LayerNorm(d_attn)
        self.inp = nn.Linear(d_attn, 3 * d_attn)
        self.out = nn.Linear(d_attn, d_attn)
        self.p_attn = p_attn

    def forward(self, x, causal=True):
        b, t, d = x.shape
        q, k, v = self.inp(self.norm(x)).view(b, t, 3, self.nh, -1).unbind(2)  # b t h d
        if flash_attn_func is not None and x.is_cuda:
            y = flash_attn_func(q, k, v, causal=causal)
        else:
            s = torch.einsum("bthd,bshd->bhts", q, k) / math.sqrt(q.shape[-1])
            if causal:
                s = s + torch.triu(torch.full((t, t), -torch.inf, device=s.device, dtype=s.dtype), 1)
            p = nn.functional.dropout(torch.softmax(s, -1), self.p_attn, self.training)
            y = torch.einsum("bhts,bshd->bthd", p, v)
        return x + self.out(y.reshape(b, t, d))
