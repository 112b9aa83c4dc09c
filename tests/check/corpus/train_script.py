#!/usr/bin/env python
import argparse
import sys
import time

import torch
from torch import nn

parser = argparse.ArgumentParser(description='toy')
parser.add_argument('--data', type=str, required=True, help='corpus')
parser.add_argument('--emsize', type=int, default=48, help='size of word embeddings')
parser.add_argument('--nhead', type=int, default=4)
parser.add_argument('--dropout', type=float, default=0.2)
args = parser.parse_args()

print('=' * 89)
print('arguments:', args)
print('=' * 89, file=sys.stderr)


class SelfAttention(nn.Module):
    def __init__(self, dim=args.emsize, heads=args.nhead):
        super().__init__()
        self.heads = heads
        self.inp, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.drop = nn.Dropout(args.dropout)

    def forward(self, x, src_mask=None):
        print('forward', tuple(x.shape))
        B, T, D = x.shape
        q, k, v = [z.reshape(B, T, self.heads, D // self.heads).transpose(1, 2) for z in self.inp(x).chunk(3, dim=-1)]
        a = q.matmul(k.transpose(-1, -2)).div((D // self.heads) ** 0.5)
        if src_mask is not None:
            a = a + src_mask
        a = self.drop(a.softmax(-1))
        return self.out(a.matmul(v).transpose(1, 2).reshape(B, T, D))


if __name__ == '__main__':
    start = time.time()
    print(SelfAttention()(torch.zeros(2, 3, args.emsize)).shape, time.time() - start)
