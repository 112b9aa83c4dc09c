import sys
import torch
import torch.nn as nn

device = torch.device('cuda:0')
torch.backends.cudnn.benchmark = True
MASK = torch.triu(torch.ones(64, 64, device=device), diagonal=1).bool()


class Attn(nn.Module):
    def __init__(self, n_units, n_heads):
        super(Attn, self).__init__()
        self.n_units = n_units
        self.n_heads = n_heads
        self.qkv = nn.Linear(n_units, 3 * n_units)
        self.o = nn.Linear(n_units, n_units)

    def forward(self, x):
        b, l, u = x.size()
        q, k, v = self.qkv(x).view(b, l, 3, self.n_heads, u // self.n_heads).permute(2, 0, 3, 1, 4)
        e = q.matmul(k.transpose(2, 3)) / (u // self.n_heads) ** .5
        e.masked_fill_(MASK[:l, :l], -1e18)
        return self.o(e.softmax(3).matmul(v).transpose(1, 2).reshape(b, l, u))


model = Attn(32, 4).to(device)
