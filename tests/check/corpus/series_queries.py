import math
import torch
import torch.nn as nn


class TimeAttention(nn.Module):
    """queries, keys, values: [B, L, H, E]"""

    def __init__(self, attention_dropout=0.0):
        super().__init__()
        self.dropout = nn.Dropout(attention_dropout)

    def forward(self, queries, keys, values):
        B, L, H, E = queries.shape
        scores = torch.einsum("blhe,bshe->bhls", queries, keys)
        A = self.dropout(torch.softmax(scores / math.sqrt(E), dim=-2))
        return torch.einsum("bhls,bshd->blhd", A, values).contiguous()
