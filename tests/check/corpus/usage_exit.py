import sys

import torch
import torch.nn as nn

if len(sys.argv) != 3:
    print("usage: python %s DATA OUT" % sys.argv[0])
    sys.exit(1)


class SelfAttention(nn.Module):
    """One head over a sentence of word vectors"""

    def __init__(self, word_dim):
        super().__init__()
        self.wq = nn.Parameter(torch.randn(word_dim, word_dim) * 0.1)
        self.wk = nn.Parameter(torch.randn(word_dim, word_dim) * 0.1)
        self.wv = nn.Parameter(torch.randn(word_dim, word_dim) * 0.1)

    def forward(self, sentence):
        q = torch.matmul(sentence, self.wq)
        k = torch.matmul(sentence, self.wk)
        v = torch.matmul(sentence, self.wv)
        p = torch.softmax(torch.bmm(q, k.permute(0, 2, 1)) / q.size(2) ** 0.5, dim=2)
        return torch.bmm(p, v)
