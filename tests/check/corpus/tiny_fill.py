import torch
import torch.nn as nn
import torch.nn.functional as F


class MHA(nn.Module):
    def __init__(self, emb_dim, num_heads):
        super().__init__()
        self.num_heads, self.hd = num_heads, emb_dim // num_heads
        self.q_proj = nn.Linear(emb_dim, emb_dim)
        self.k_proj = nn.Linear(emb_dim, emb_dim)
        self.v_proj = nn.Linear(emb_dim, emb_dim)
        self.o_proj = nn.Linear(emb_dim, emb_dim)

    def forward(self, x, attn_mask=None):
        n, l, e = x.shape
        q = self.q_proj(x).view(n, l, self.num_heads, self.hd).transpose(1, 2)
        k = self.k_proj(x).view(n, l, self.num_heads, self.hd).transpose(1, 2)
        v = self.v_proj(x).view(n, l, self.num_heads, self.hd).transpose(1, 2)
        energy = torch.matmul(q, k.transpose(-2, -1)) / (self.hd ** 0.5)
        if attn_mask is not None:
            energy = energy.masked_fill(attn_mask == 0, 1e-9)
        return self.o_proj(torch.matmul(F.softmax(energy, dim=-1), v).transpose(1, 2).reshape(n, l, e))
