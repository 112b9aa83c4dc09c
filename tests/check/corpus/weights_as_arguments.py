import numpy as np
import torch


def softmax(x):
    e = torch.exp(x - x.max(dim=-1, keepdim=True).values)
    return e / e.sum(dim=-1, keepdim=True)


def self_attention(x, W_q, W_k, W_v):
    """x: (batch, seq, d_model); W_*: (d_model, d_head)"""
    Q = x @ W_q
    K = x @ W_k
    V = x @ W_v
    d = K.shape[-1]
    return softmax(Q @ K.swapaxes(-1, -2) / np.sqrt(d)) @ V
