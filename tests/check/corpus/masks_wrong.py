"""Helpers that make masks."""
import numpy as np
import torch


def create_look_ahead_mask(size):
    """1 where a position must not be seen"""
    mask = torch.triu(torch.ones(size, size), diagonal=0)
    return mask  # (seq_len, seq_len)


def subsequent_mask(size):
    attn_shape = (1, size, size)
    mask = np.tril(np.ones(attn_shape), k=1).astype('uint8')
    return torch.from_numpy(mask) == 1


def make_causal_mask(seq_len):
    """additive: 0 may be seen, -inf may not"""
    m = torch.full((seq_len, seq_len), float('-inf'))
    return torch.tril(m, diagonal=-1)
