import numpy as np
import torch
import torch.nn as nn


class Attention(nn.Module):
    def __init__(self, units, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.wq = nn.Linear(units, units)
        self.wk = nn.Linear(units, units)
        self.wv = nn.Linear(units, units)

    def forward(self, queries, keys, values):
        Q, K, V = self.wq(queries), self.wk(keys), self.wv(values)
        Q_ = torch.cat(torch.chunk(Q, self.num_heads, dim=2), dim=0)
        K_ = torch.cat(torch.chunk(K, self.num_heads, dim=2), dim=0)
        V_ = torch.cat(torch.chunk(V, self.num_heads, dim=2), dim=0)
        outputs = torch.bmm(Q_, K_.permute(0, 2, 1)) / np.sqrt(K_.shape[-1])
        outputs = torch.softmax(outputs, dim=-1)
        outputs = nn.Dropout(p=0.1)(outputs)
        outputs = torch.bmm(outputs, V_)
        return torch.cat(torch.chunk(outputs, self.num_heads, dim=0), dim=2)
