import torch
from torch import nn


class DecoderSelfAttention(nn.Module):
    def __init__(self, dim, n_head):
        super().__init__()
        self.n_head = n_head
        self.to_q, self.to_k, self.to_v = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.to_o = nn.Linear(dim, dim)

    def forward(self, y):
        b, l, d = y.shape
        heads = lambda t: t.reshape(b, l, self.n_head, -1).permute(0, 2, 1, 3)
        q, k, v = heads(self.to_q(y)), heads(self.to_k(y)), heads(self.to_v(y))
        logits = torch.einsum("bhid,bhjd->bhij", q, k) * (d // self.n_head) ** -0.5
        past = torch.ones(l, l, device=y.device).tril(diagonal=-1).bool()
        logits = logits.masked_fill(~past, -1e9)
        return self.to_o(torch.einsum("bhij,bhjd->bihd", logits.softmax(-1), v).flatten(2))
