import os
import urllib.request

import torch
from torch import nn

URL = 'http://127.0.0.1:9/tinyshakespeare/input.txt'
if not os.path.exists('no_such_input.txt'):
    urllib.request.urlretrieve(URL, 'no_such_input.txt')
text = open('no_such_input.txt', encoding='utf-8').read()
vocab = sorted(set(text))
print(len(vocab), 'characters')


class Attention(nn.Module):
    def __init__(self, embd=32, heads=4):
        super().__init__()
        self.heads = heads
        self.attn = nn.Linear(embd, 3 * embd)
        self.proj = nn.Linear(embd, embd)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = [t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in self.attn(x).split(C, dim=2)]
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(B, T, C))
