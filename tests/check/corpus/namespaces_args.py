import argparse

import torch
from torch import nn


def get_args(argv=None):
    p = argparse.ArgumentParser()
    p.add_argument("--hidden-dim", type=int, default=32)
    p.add_argument("--nheads", type=int, default=4)
    p.add_argument("--pre-norm", action="store_true")
    p.add_argument("--dropout", type=float, default=0.1)
    return p.parse_args(argv)


class ArgsAttention(nn.Module):
    """`args` is what argparse gives"""

    def __init__(self, args):
        super().__init__()
        self.pre_norm = args.pre_norm
        self.norm = nn.LayerNorm(args.hidden_dim)
        self.attn = nn.MultiheadAttention(args.hidden_dim, args.nheads, dropout=args.dropout, batch_first=True)

    def forward(self, src, src_key_padding_mask=None):
        h = self.norm(src) if self.pre_norm else src
        h = src + self.attn(h, h, h, key_padding_mask=src_key_padding_mask, need_weights=False)[0]
        return h if self.pre_norm else self.norm(h)
