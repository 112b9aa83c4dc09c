import torch
import torch.nn as nn


class LengthAttention(nn.Module):
    """x (B, T, D), lengths (B,)"""

    def __init__(self, d_model, nheads):
        super().__init__()
        self.nheads = nheads
        self.lin_qkv = nn.Linear(d_model, d_model * 3)
        self.lin_out = nn.Linear(d_model, d_model)

    def make_mask(self, lengths, t):
        return torch.arange(t, device=lengths.device)[None, :] > lengths[:, None]

    def forward(self, x, lengths):
        B, T, D = x.shape
        Q, K, V = [p.view(B, T, self.nheads, -1).transpose(1, 2) for p in torch.chunk(self.lin_qkv(x), 3, -1)]
        A = torch.matmul(Q, K.transpose(-1, -2)) / (D / self.nheads) ** 0.5
        A = A.masked_fill(self.make_mask(lengths, T)[:, None, None], float("-inf"))
        return self.lin_out(torch.matmul(A.softmax(-1), V).transpose(1, 2).reshape(B, T, D))
