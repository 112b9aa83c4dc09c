import math

import torch
import torch.nn as nn


class EncoderSelfAttention(nn.Module):
    def __init__(self, hid_dim, n_heads, dropout=0.1):
        super().__init__()
        self.n_heads = n_heads
        self.fc_q, self.fc_k, self.fc_v, self.fc_o = [nn.Linear(hid_dim, hid_dim) for _ in range(4)]
        self.dropout = nn.Dropout(dropout)

    def forward(self, src, src_padding_mask=None):
        # src_padding_mask = [batch size, src len], True where there is a word
        bs, sl, hd = src.shape
        Q = self.fc_q(src).view(bs, sl, self.n_heads, -1).permute(0, 2, 1, 3)
        K = self.fc_k(src).view(bs, sl, self.n_heads, -1).permute(0, 2, 1, 3)
        V = self.fc_v(src).view(bs, sl, self.n_heads, -1).permute(0, 2, 1, 3)
        energy = torch.matmul(Q, K.permute(0, 1, 3, 2)) / math.sqrt(hd // self.n_heads)
        if src_padding_mask is not None:
            energy = energy.masked_fill(src_padding_mask.unsqueeze(1).unsqueeze(-1) == 0, -1e10)
        x = torch.matmul(self.dropout(torch.softmax(energy, dim=-1)), V)
        return self.fc_o(x.permute(0, 2, 1, 3).reshape(bs, sl, hd))
