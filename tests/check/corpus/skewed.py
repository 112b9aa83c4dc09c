import torch
import torch.nn as nn
import torch.nn.functional as F


class MusicAttention(nn.Module):
    """Relative global attention with the skewing trick."""

    def __init__(self, d_model, num_heads, max_len=64):
        super().__init__()
        self.num_heads, self.max_len = num_heads, max_len
        self.key, self.query, self.value = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.Er = nn.Parameter(torch.randn(max_len, d_model // num_heads))
        self.register_buffer("mask", torch.tril(torch.ones(max_len, max_len)).unsqueeze(0).unsqueeze(0))

    def forward(self, x):
        # x.shape == (batch_size, seq_len, d_model)
        batch_size, seq_len, _ = x.shape
        k_t = self.key(x).reshape(batch_size, seq_len, self.num_heads, -1).permute(0, 2, 3, 1)
        v = self.value(x).reshape(batch_size, seq_len, self.num_heads, -1).transpose(1, 2)
        q = self.query(x).reshape(batch_size, seq_len, self.num_heads, -1).transpose(1, 2)
        start = self.max_len - seq_len
        Er_t = self.Er[start:, :].transpose(0, 1)
        Srel = self.skew(torch.matmul(q, Er_t))
        attn = (torch.matmul(q, k_t) + Srel) / q.size(-1) ** 0.5
        attn = attn.masked_fill(self.mask[:, :, :seq_len, :seq_len] == 0, float("-inf"))
        out = torch.matmul(F.softmax(attn, dim=-1), v)
        return out.transpose(1, 2).reshape(batch_size, seq_len, -1)

    def skew(self, QEr):
        padded = F.pad(QEr, (1, 0))
        batch_size, num_heads, num_rows, num_cols = padded.shape
        reshaped = padded.reshape(batch_size, num_heads, num_cols, num_rows)
        return reshaped[:, :, 1:, :]
