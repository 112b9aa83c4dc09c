import torch
import torch.nn as nn
import torch.nn.functional as F


class MultiHead(nn.Module):
    def __init__(self, n_hidden, n_head):
        super().__init__()
        self.n_head = n_head
        self.wq = nn.Linear(n_hidden, n_hidden)
        self.wk = nn.Linear(n_hidden, n_hidden)
        self.wv = nn.Linear(n_hidden, n_hidden)
        self.wo = nn.Linear(n_hidden, n_hidden)

    def attention(self, q, k, v):
        # k: [batch, head, len, d]
        score = torch.einsum('bhid,bhjd->bhij', q, k) / k.size(2) ** 0.5
        return torch.einsum('bhij,bhjd->bhid', F.softmax(score, dim=3), v)

    def forward(self, src):
        bs, length, hid = src.size()
        q, k, v = [l(src).reshape(bs, length, self.n_head, hid // self.n_head).permute(0, 2, 1, 3)
                   for l in (self.wq, self.wk, self.wv)]
        out = self.attention(q, k, v).permute(0, 2, 1, 3).reshape(bs, length, hid)
        return self.wo(out)
