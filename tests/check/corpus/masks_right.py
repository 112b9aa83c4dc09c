"""Masks, the ways one meets them."""
import torch


def causal_mask(n, device="cpu"):
    return torch.full((n, n), float("-inf"), device=device).triu_(1)


def create_mask(tgt, pad_id=0):
    """[B, 1, T, T]: triangle and padding; True = may be seen"""
    t = tgt.size(1)
    pad = (tgt != pad_id).unsqueeze(1).unsqueeze(2)
    nopeak = (1 - torch.triu(torch.ones(1, t, t), diagonal=1)).bool()
    return pad & nopeak


def lengths_to_padding_mask(lengths, max_len=None):
    max_len = max_len or int(lengths.max())
    return torch.arange(max_len)[None, :] >= lengths[:, None]


def local_causal_mask(seq_len, window=3):
    i, j = torch.meshgrid(torch.arange(seq_len), torch.arange(seq_len), indexing="ij")
    return (j <= i) & (j > i - window)
