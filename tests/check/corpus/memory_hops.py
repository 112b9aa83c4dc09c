import torch
import torch.nn as nn


class MemoryHop(nn.Module):
    """One hop of an end-to-end memory network: o = sum_i softmax(u . m_i) c_i, u' = H u + o."""

    def __init__(self, embedding_dim):
        super().__init__()
        self.A = nn.Linear(embedding_dim, embedding_dim, bias=False)
        self.C = nn.Linear(embedding_dim, embedding_dim, bias=False)
        self.H = nn.Linear(embedding_dim, embedding_dim, bias=False)
        self.softmax = nn.Softmax(dim=1)

    def forward(self, u, story):
        # u: (batch, dim), story: (batch, sentences, dim)
        m = self.A(story)
        c = self.C(story)
        prob = self.softmax(torch.sum(m * u.unsqueeze(1), 2))
        o_k = torch.sum(c * prob.unsqueeze(2), 1)
        return self.H(u) + o_k
