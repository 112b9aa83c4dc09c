import torch
from torch import nn
import torch.nn.functional as F


class ForwardAttention(nn.Module):
    """Forward attention of a speech synthesiser: the last alignment moves on by at most one."""

    def __init__(self, query_dim, memory_dim, attn_dim=16):
        super().__init__()
        self.query_layer = nn.Linear(query_dim, attn_dim, bias=False)
        self.inputs_layer = nn.Linear(memory_dim, attn_dim, bias=False)
        self.v = nn.Linear(attn_dim, 1)

    def forward(self, query, inputs, prev_alignment, mask=None):
        """query (B, Q), inputs (B, T, D), prev_alignment (B, T), mask (B, T) True = there"""
        energies = self.v(torch.tanh(self.query_layer(query.unsqueeze(1)) + self.inputs_layer(inputs))).squeeze(-1)
        if mask is not None:
            energies = energies.masked_fill(~mask, -float("inf"))
        alignment = torch.softmax(energies, dim=-1)
        moved = F.pad(prev_alignment[:, :-1], (1, 0))
        alpha = (prev_alignment + moved + 1e-8) * alignment
        alpha = alpha / alpha.sum(dim=1, keepdim=True)
        context = torch.bmm(alpha.unsqueeze(1), inputs).squeeze(1)
        return context, alpha
