from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class ModelArgs:
    hidden_size: int = 48
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 8
    attn_logit_softcapping: float = 50.0
    rope_theta: float = 10000.0
    sliding_window: int = 64


class SoftcapAttention(nn.Module):
    """Scores pass through cap * tanh(scores / cap); grouped keys, rotary places, a causal window."""

    def __init__(self, args: ModelArgs):
        super().__init__()
        self.args = args
        self.groups = args.num_attention_heads // args.num_key_value_heads
        self.q_proj = nn.Linear(args.hidden_size, args.num_attention_heads * args.head_dim, bias=False)
        self.k_proj = nn.Linear(args.hidden_size, args.num_key_value_heads * args.head_dim, bias=False)
        self.v_proj = nn.Linear(args.hidden_size, args.num_key_value_heads * args.head_dim, bias=False)
        self.o_proj = nn.Linear(args.num_attention_heads * args.head_dim, args.hidden_size, bias=False)

    def _rope(self, x):
        half = x.shape[-1] // 2
        freq = self.args.rope_theta ** (-torch.arange(half, dtype=x.dtype, device=x.device) / half)
        angle = torch.arange(x.shape[-2], dtype=x.dtype, device=x.device)[:, None] * freq
        x1, x2 = x[..., :half], x[..., half:]
        return torch.cat((x1 * angle.cos() - x2 * angle.sin(), x1 * angle.sin() + x2 * angle.cos()), -1)

    def forward(self, hidden_states):
        b, t, _ = hidden_states.shape
        q, k, v = (p(hidden_states).view(b, t, -1, self.args.head_dim).transpose(1, 2)
                   for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = self._rope(q), self._rope(k)
        k, v = (z.repeat_interleave(self.groups, dim=1) for z in (k, v))
        logits = q @ k.transpose(2, 3) * self.args.head_dim ** -0.5
        logits = torch.tanh(logits / self.args.attn_logit_softcapping) * self.args.attn_logit_softcapping
        i = torch.arange(t, device=logits.device)
        gap = i[:, None] - i[None, :]
        hidden = (gap < 0) | (gap >= self.args.sliding_window)
        logits = logits.masked_fill(hidden, torch.finfo(logits.dtype).min)
        out = F.softmax(logits, dim=-1) @ v
        return self.o_proj(out.transpose(1, 2).reshape(b, t, -1))
