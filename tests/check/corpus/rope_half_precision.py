import torch
import torch.nn as nn


class RotaryEmbedding(nn.Module):
    """Tables in bfloat16, to save memory."""

    def __init__(self, dim, base=10000):
        super().__init__()
        self.register_buffer("inv_freq", 1.0 / (base ** (torch.arange(0, dim, 2).float() / dim)))

    def forward(self, x, seq_len=None):
        seq_len = seq_len or x.shape[-2]
        t = torch.arange(seq_len, device=x.device, dtype=torch.bfloat16)
        freqs = torch.einsum("i,j->ij", t, self.inv_freq.to(torch.bfloat16))
        emb = torch.cat((freqs, freqs), dim=-1)
        return emb.cos(), emb.sin()
