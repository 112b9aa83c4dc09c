#!/usr/bin/env python3
# encoding: utf-8
"""Multi-Head Attention layer definition."""
import math

import numpy
import torch
from torch import nn


def make_pad_mask(lengths, maxlen=None):
    """Make mask tensor containing indices of padded part."""
    if not isinstance(lengths, list):
        lengths = lengths.tolist()
    bs = int(len(lengths))
    if maxlen is None:
        maxlen = int(max(lengths))
    seq_range = torch.arange(0, maxlen, dtype=torch.int64)
    seq_range_expand = seq_range.unsqueeze(0).expand(bs, maxlen)
    seq_length_expand = seq_range_expand.new(lengths).unsqueeze(-1)
    return seq_range_expand >= seq_length_expand


class MultiHeadedAttention(nn.Module):
    """Multi-Head Attention layer.

    :param int n_head: the number of head s
    :param int n_feat: the number of features
    :param float dropout_rate: dropout rate
    """

    def __init__(self, n_head, n_feat, dropout_rate):
        super(MultiHeadedAttention, self).__init__()
        assert n_feat % n_head == 0
        self.d_k = n_feat // n_head
        self.h = n_head
        self.linear_q = nn.Linear(n_feat, n_feat)
        self.linear_k = nn.Linear(n_feat, n_feat)
        self.linear_v = nn.Linear(n_feat, n_feat)
        self.linear_out = nn.Linear(n_feat, n_feat)
        self.attn = None
        self.dropout = nn.Dropout(p=dropout_rate)

    def forward(self, query, key, value, mask):
        """Compute 'Scaled Dot Product Attention'.

        :param torch.Tensor mask: (batch, 1, time2) or (batch, time1, time2), nonzero = valid
        """
        n_batch = query.size(0)
        q = self.linear_q(query).view(n_batch, -1, self.h, self.d_k).transpose(1, 2)
        k = self.linear_k(key).view(n_batch, -1, self.h, self.d_k).transpose(1, 2)
        v = self.linear_v(value).view(n_batch, -1, self.h, self.d_k).transpose(1, 2)
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(self.d_k)
        if mask is not None:
            mask = mask.unsqueeze(1).eq(0)  # (batch, 1, *, time2)
            min_value = float(numpy.finfo(torch.tensor(0, dtype=scores.dtype).numpy().dtype).min)
            scores = scores.masked_fill(mask, min_value)
            self.attn = torch.softmax(scores, dim=-1).masked_fill(mask, 0.0)
        else:
            self.attn = torch.softmax(scores, dim=-1)
        p_attn = self.dropout(self.attn)
        x = torch.matmul(p_attn, v)
        x = x.transpose(1, 2).contiguous().view(n_batch, -1, self.h * self.d_k)
        return self.linear_out(x)


class LengthsEncoder(nn.Module):
    """Encoder layer over frames: xs (B, Tmax, D), ilens (B)."""

    def __init__(self, idim, aheads=4, eunits=40, dropout_rate=0.1):
        super().__init__()
        self.self_attn = MultiHeadedAttention(aheads, idim, dropout_rate)
        self.feed_forward = nn.Sequential(nn.Linear(idim, eunits), nn.ReLU(), nn.Linear(eunits, idim))
        self.norm1 = nn.LayerNorm(idim)
        self.norm2 = nn.LayerNorm(idim)

    def forward(self, xs, ilens):
        masks = (~make_pad_mask(ilens, xs.size(1)))[:, None, :].to(xs.device)
        residual = xs
        xs = self.norm1(xs)
        xs = residual + self.self_attn(xs, xs, xs, masks)
        xs = xs + self.feed_forward(self.norm2(xs))
        return xs, masks
