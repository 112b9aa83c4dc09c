import torch
from torch import nn


class CausalRecommenderLayer(nn.Module):
    """Predicts the next item of a session."""

    def __init__(self, item_dim, num_heads, dropout=0.2):
        super().__init__()
        self.ln = nn.LayerNorm(item_dim, eps=1e-8)
        self.mha = nn.MultiheadAttention(item_dim, num_heads, dropout, batch_first=True)

    def forward(self, seq):
        n = seq.size(1)
        may_look = torch.tril(torch.ones(n, n, dtype=torch.bool, device=seq.device))
        q = self.ln(seq)
        out, _ = self.mha(q, seq, seq, attn_mask=may_look, need_weights=False)
        return q + out
