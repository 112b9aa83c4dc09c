import torch
from torch import nn


class AttrDict(dict):
    __getattr__ = dict.__getitem__


DEFAULTS = AttrDict(model=AttrDict(encoder=AttrDict(emb_dim=40, n_heads=5, attn_dropout=0.0)), train=AttrDict(lr=1e-3))


class EncoderAttention(nn.Module):
    """cfg is what the YAML file gives: cfg.model.encoder.emb_dim ..."""

    def __init__(self, cfg=DEFAULTS):
        super().__init__()
        enc = cfg.model.encoder
        self.mha = nn.MultiheadAttention(enc.emb_dim, enc.n_heads, dropout=enc.attn_dropout, batch_first=True)
        self.ln = nn.LayerNorm(enc.emb_dim)

    def forward(self, x, mask=None):
        h = self.ln(x)
        out, _ = self.mha(h, h, h, attn_mask=mask)
        return x + out
