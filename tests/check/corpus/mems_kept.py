import torch
import torch.nn as nn


class RecurrentMemoryAttention(nn.Module):
    """Looks at the last segment, too."""

    def __init__(self, d_model: int, n_head: int):
        super().__init__()
        self.n_head, self.d_head = n_head, d_model // n_head
        self.q_net = nn.Linear(d_model, d_model, bias=False)
        self.kv_net = nn.Linear(d_model, 2 * d_model, bias=False)
        self.o_net = nn.Linear(d_model, d_model, bias=False)
        self.mems = None

    def forward(self, w):
        b, t, _ = w.shape
        cat = w if self.mems is None else torch.cat([self.mems, w], dim=1)
        self.mems = w.detach()
        q = self.q_net(w).view(b, t, self.n_head, self.d_head)
        k, v = self.kv_net(cat).view(b, cat.size(1), 2, self.n_head, self.d_head).unbind(2)
        score = torch.einsum("bind,bjnd->bnij", q, k) / self.d_head**0.5
        vec = torch.einsum("bnij,bjnd->bind", score.softmax(-1), v)
        return self.o_net(vec.reshape(b, t, -1))
