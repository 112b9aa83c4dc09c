import torch
from torch import nn


class GPTMiniAttention(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.n_head = n_head
        self.attn = nn.Linear(n_embd, 3 * n_embd)
        self.proj = nn.Linear(n_embd, n_embd)

    def forward(self, x, past_kv=None):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.n_head, -1).transpose(1, 2) for t in self.attn(x).split(C, -1))
        if past_kv is not None:
            k = torch.cat((k, past_kv[0]), dim=-2)
            v = torch.cat((v, past_kv[1]), dim=-2)
        S = k.shape[-2]
        allowed = torch.ones(T, S, device=x.device, dtype=torch.bool).tril(S - T)
        w = (q @ k.transpose(-1, -2)) / (C // self.n_head) ** 0.5
        w = w.masked_fill(~allowed, torch.finfo(w.dtype).min).softmax(-1)
        return self.proj((w @ v).transpose(1, 2).reshape(B, T, C)), (k, v)
