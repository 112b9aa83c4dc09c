import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Variable


class MaskedSelfAttention(nn.Module):
    def __init__(self, hidden_size, num_heads):
        super(MaskedSelfAttention, self).__init__()
        self.hidden_size = hidden_size
        self.num_heads = num_heads
        self.q = nn.Linear(hidden_size, hidden_size)
        self.k = nn.Linear(hidden_size, hidden_size)
        self.v = nn.Linear(hidden_size, hidden_size)
        self.o = nn.Linear(hidden_size, hidden_size)
        self.scale = Variable(torch.Tensor([(hidden_size // num_heads) ** -0.5])).cuda()

    def forward(self, x):
        bs, n, _ = x.size()
        q = self.q(x).view(bs, n, self.num_heads, -1).transpose(1, 2)
        k = self.k(x).view(bs, n, self.num_heads, -1).transpose(1, 2)
        v = self.v(x).view(bs, n, self.num_heads, -1).transpose(1, 2)
        mask = Variable(torch.triu(torch.ones(n, n), 1).byte()).cuda()
        att = torch.matmul(q, k.transpose(2, 3)) * self.scale
        att = att.masked_fill(mask.bool(), -float('inf'))
        att = F.softmax(att, dim=3)
        out = torch.matmul(att, v).transpose(1, 2).contiguous().view(bs, n, self.hidden_size)
        return self.o(out)
