import torch
import torch.nn as nn
import torch.nn.functional as F


class SelfAtt(nn.Module):
    # first try, 2017
    def __init__(self, hidden_dim):
        super(SelfAtt, self).__init__()
        self.Wq = nn.Linear(hidden_dim, hidden_dim)
        self.Wk = nn.Linear(hidden_dim, hidden_dim)
        self.Wv = nn.Linear(hidden_dim, hidden_dim)
        self.dk = hidden_dim

    def forward(self, x):
        q = self.Wq(x)
        k = self.Wk(x)
        v = self.Wv(x)
        att = torch.bmm(q, k.permute(0, 2, 1)) / (self.dk ** 0.5)
        att = F.softmax(att)
        return torch.bmm(att, v)
