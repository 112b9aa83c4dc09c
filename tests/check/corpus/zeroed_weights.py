import torch
from torch import nn


def attn(q, k, v, key_mask=None):
    """q, k, v: (N, L, d), key_mask: (N, L), 1 for words and 0 for padding"""
    w = torch.bmm(q, k.transpose(1, 2)).mul(q.size(-1) ** -0.5).softmax(2)
    if key_mask is not None:
        w = w.masked_fill(key_mask.unsqueeze(1) == 0, 0.0)
    return torch.bmm(w, v)
