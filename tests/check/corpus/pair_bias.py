import torch
import torch.nn as nn


class MSARowAttentionWithPairBias(nn.Module):
    """m: [*, N_seq, N_res, C_m], z: [*, N_res, N_res, C_z], mask: [*, N_seq, N_res], 1 = there"""

    def __init__(self, c_m, c_z, c_hidden, no_heads, inf=1e9):
        super().__init__()
        self.no_heads, self.c_hidden, self.inf = no_heads, c_hidden, inf
        self.layer_norm_m, self.layer_norm_z = nn.LayerNorm(c_m), nn.LayerNorm(c_z)
        self.linear_z = nn.Linear(c_z, no_heads, bias=False)
        self.linear_q = nn.Linear(c_m, no_heads * c_hidden, bias=False)
        self.linear_k = nn.Linear(c_m, no_heads * c_hidden, bias=False)
        self.linear_v = nn.Linear(c_m, no_heads * c_hidden, bias=False)
        self.linear_g = nn.Linear(c_m, no_heads * c_hidden)
        self.linear_o = nn.Linear(no_heads * c_hidden, c_m)

    def forward(self, m, z, mask=None):
        m = self.layer_norm_m(m)
        if mask is None:
            mask = m.new_ones(m.shape[:-1])
        bias = (self.inf * (mask - 1))[..., :, None, None, :]
        pair = self.linear_z(self.layer_norm_z(z)).movedim(-1, -3).unsqueeze(-4)
        heads = lambda t: t.view(*t.shape[:-1], self.no_heads, -1).transpose(-2, -3)
        q, k, v = heads(self.linear_q(m)) * self.c_hidden ** -0.5, heads(self.linear_k(m)), heads(self.linear_v(m))
        a = torch.softmax(q @ k.transpose(-1, -2) + bias + pair, dim=-1)
        o = (a @ v).transpose(-2, -3).flatten(-2)
        return self.linear_o(o * torch.sigmoid(self.linear_g(m)))
