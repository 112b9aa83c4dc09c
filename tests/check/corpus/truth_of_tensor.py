import torch
import torch.nn as nn
import numpy as np


class Attention(nn.Module):
    def __init__(self, d_model, h):
        super().__init__()
        self.h = h
        self.d_k = d_model // h
        self.Q = nn.Linear(d_model, d_model)
        self.K = nn.Linear(d_model, d_model)
        self.V = nn.Linear(d_model, d_model)
        self.O = nn.Linear(d_model, d_model)

    def forward(self, q, k, v, mask=None):
        b = q.size(0)
        q = self.Q(q).view(b, -1, self.h, self.d_k).transpose(1, 2)
        k = self.K(k).view(b, -1, self.h, self.d_k).transpose(1, 2)
        v = self.V(v).view(b, -1, self.h, self.d_k).transpose(1, 2)
        s = q @ k.transpose(-2, -1) / np.sqrt(self.d_k)
        if mask:
            s = s.masked_fill(mask == 0, -1e9)
        p = torch.softmax(s, -1)
        return self.O((p @ v).transpose(1, 2).contiguous().view(b, -1, self.h * self.d_k))
