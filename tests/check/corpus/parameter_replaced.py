import torch
from torch import nn


class DepthPointAttention(nn.Module):
    """Attention beside a convolution whose share is normalised on the way."""

    def __init__(self, d_model, h):
        super().__init__()
        self.h = h
        self.fc_q, self.fc_k, self.fc_v, self.fc_o = (nn.Linear(d_model, d_model) for _ in range(4))
        self.share = nn.Parameter(torch.tensor([1.0, 0.5]))

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = (f(x).view(b, n, self.h, -1).permute(0, 2, 1, 3) for f in (self.fc_q, self.fc_k, self.fc_v))
        att = torch.softmax(q @ k.transpose(-1, -2) / (d // self.h) ** 0.5, -1)
        out = self.fc_o((att @ v).permute(0, 2, 1, 3).reshape(b, n, d))
        self.share = nn.Parameter(torch.softmax(self.share, 0))
        return self.share[0] * out + self.share[1] * x
