import torch
import torch.nn as nn


class EdgeMultiHeadAttention(nn.Module):
    """Nodes h [B, N, D] and edges e [B, N, N, D]; adj [B, N, N], 1 where there is an edge"""

    def __init__(self, in_dim, out_dim, num_heads, use_bias=False):
        super().__init__()
        self.out_dim, self.num_heads = out_dim // num_heads, num_heads
        self.Q = nn.Linear(in_dim, out_dim, bias=use_bias)
        self.K = nn.Linear(in_dim, out_dim, bias=use_bias)
        self.V = nn.Linear(in_dim, out_dim, bias=use_bias)
        self.proj_e = nn.Linear(in_dim, out_dim, bias=use_bias)

    def forward(self, h, e, adj=None):
        b, n, _ = h.shape
        heads = lambda t: t.view(*t.shape[:-1], self.num_heads, self.out_dim)
        q, k, v, e = heads(self.Q(h)), heads(self.K(h)), heads(self.V(h)), heads(self.proj_e(e))
        score = (q[:, :, None] * k[:, None] * e).sum(-1) / self.out_dim ** 0.5
        if adj is not None:
            score = score.masked_fill(adj[..., None] == 0, -1e9)
        weights = torch.softmax(score, dim=2)
        return torch.einsum("bijh,bjhd->bihd", weights, v).reshape(b, n, -1)
