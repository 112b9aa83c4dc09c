from collections import OrderedDict

import torch
from torch import nn


class Attn(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.hidden, self.heads = config["hidden_size"], config["num_heads"]
        self.layers = nn.ModuleDict(OrderedDict(
            query=nn.Linear(self.hidden, self.hidden),
            key=nn.Linear(self.hidden, self.hidden),
            value=nn.Linear(self.hidden, self.hidden),
            output=nn.Linear(self.hidden, self.hidden),
        ))
        self.norm_fact = 1 / self.heads ** 0.5

    def _shape(self, name, x):
        b, n, _ = x.shape
        return self.layers[name](x).view(b, n, self.heads, -1).permute(0, 2, 1, 3)

    def forward(self, inputs):
        q, k, v = (self._shape(n, inputs) for n in ("query", "key", "value"))
        attn = (q.matmul(k.transpose(-1, -2)) * self.norm_fact).softmax(-1)
        return self.layers["output"](attn.matmul(v).permute(0, 2, 1, 3).flatten(2))
