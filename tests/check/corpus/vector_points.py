"""Attention among points: a weight for every channel, relative places, the nearest neighbours."""
import torch
from torch import nn


class PointTransformerLayer(nn.Module):
    def __init__(self, dim, pos_mlp_hidden_dim=16, attn_mlp_hidden_mult=2):
        super().__init__()
        self.to_qkv = nn.Linear(dim, dim * 3, bias=False)
        self.pos_mlp = nn.Sequential(nn.Linear(3, pos_mlp_hidden_dim), nn.ReLU(), nn.Linear(pos_mlp_hidden_dim, dim))
        self.attn_mlp = nn.Sequential(nn.Linear(dim, dim * attn_mlp_hidden_mult), nn.ReLU(), nn.Linear(dim * attn_mlp_hidden_mult, dim))

    def forward(self, x, pos, mask=None):
        q, k, v = self.to_qkv(x).chunk(3, dim=-1)
        rel = self.pos_mlp(pos[:, :, None, :] - pos[:, None, :, :])
        sim = self.attn_mlp(q[:, :, None, :] - k[:, None, :, :] + rel)
        if mask is not None:
            pair = mask[:, :, None] & mask[:, None, :]
            sim = sim.masked_fill(~pair[..., None], -torch.finfo(sim.dtype).max)
        return torch.einsum('bijd,bijd->bid', sim.softmax(dim=-2), v[:, None] + rel)
