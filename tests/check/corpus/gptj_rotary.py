import torch
from torch import nn


def fixed_pos_embedding(x, seq_dim=1, seq_len=None):
    dim = x.shape[-1]
    if seq_len is None:
        seq_len = x.shape[seq_dim]
    inv_freq = 1.0 / (10000 ** (torch.arange(0, dim, 2) / dim))
    sinusoid_inp = torch.einsum("i , j -> i j", torch.arange(seq_len, dtype=torch.float), inv_freq).to(x.device).float()
    return torch.sin(sinusoid_inp), torch.cos(sinusoid_inp)


def rotate_every_two(x):
    x1 = x[:, :, :, ::2]
    x2 = x[:, :, :, 1::2]
    x = torch.stack((-x2, x1), dim=-1)
    return x.flatten(-2)


def duplicate_interleave(m):
    dim0 = m.shape[0]
    m = m.view(-1, 1)
    m = m.repeat(1, 2)
    return m.view(dim0, -1)


def apply_rotary_pos_emb(x, sincos, offset=0):
    sin, cos = map(lambda t: duplicate_interleave(t)[None, offset:x.shape[1] + offset, None, :], sincos)
    return (x * cos) + (rotate_every_two(x) * sin)


class RotaryAttention(nn.Module):
    """Rotates only the first `rotary_dim` channels of each head."""

    def __init__(self, embed_dim, num_attention_heads, rotary_dim=None, max_positions=64):
        super().__init__()
        self.register_buffer("mask", torch.tril(torch.ones(max_positions, max_positions, dtype=torch.bool))[None, None])
        self.heads = num_attention_heads
        self.size = embed_dim // num_attention_heads
        self.rotary_dim = min(rotary_dim or self.size, self.size)
        self.k_proj = nn.Linear(embed_dim, embed_dim, bias=False)
        self.v_proj = nn.Linear(embed_dim, embed_dim, bias=False)
        self.q_proj = nn.Linear(embed_dim, embed_dim, bias=False)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=False)

    def _split(self, x):
        return x.view(x.size(0), x.size(1), self.heads, self.size)

    def _rotate(self, x, sincos):
        rot, keep = x[..., : self.rotary_dim], x[..., self.rotary_dim:]
        return torch.cat([apply_rotary_pos_emb(rot, sincos), keep], dim=-1)

    def forward(self, hidden_states):
        q, k, v = map(self._split, (self.q_proj(hidden_states), self.k_proj(hidden_states), self.v_proj(hidden_states)))
        sincos = fixed_pos_embedding(k[..., : self.rotary_dim], 1)
        q, k = self._rotate(q, sincos), self._rotate(k, sincos)
        q, k, v = (t.permute(0, 2, 1, 3) for t in (q, k, v))
        w = torch.matmul(q, k.transpose(-1, -2)) / self.size ** 0.5
        n = w.shape[-1]
        w = torch.where(self.mask[:, :, :n, :n], w, torch.tensor(torch.finfo(w.dtype).min, dtype=w.dtype))
        out = torch.matmul(w.softmax(-1), v).permute(0, 2, 1, 3).contiguous()
        return self.out_proj(out.view(*hidden_states.shape))
