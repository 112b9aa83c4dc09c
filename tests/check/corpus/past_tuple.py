import torch
from torch import nn
import torch.nn.functional as F


class StepwiseAttention(nn.Module):
    def __init__(self, n_state: int, n_head: int):
        super().__init__()
        self.n_head = n_head
        self.c_attn = nn.Linear(n_state, 3 * n_state)
        self.c_proj = nn.Linear(n_state, n_state)

    @staticmethod
    def causal(nd, ns, device):
        return torch.tril(torch.ones(nd, ns, dtype=torch.bool, device=device))

    def forward(self, x, layer_past=None):
        b, t, n = x.shape
        q, k, v = (y.view(b, t, self.n_head, -1).transpose(1, 2) for y in self.c_attn(x).split(n, dim=-1))
        if layer_past is not None:
            k = torch.cat((layer_past[0], k), dim=-2)
            v = torch.cat((layer_past[1], v), dim=-2)
        present = (k, v)
        w = q @ k.transpose(-2, -1) / (n // self.n_head) ** 0.5
        w = w.masked_fill(~self.causal(t, k.size(-2), x.device), torch.finfo(w.dtype).min)
        a = w.softmax(-1) @ v
        return self.c_proj(a.transpose(1, 2).reshape(b, t, n)), present
