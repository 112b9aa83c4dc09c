import torch
from torch import nn
import torch.nn.functional as F


class CausalLocalAttention(nn.Module):
    def __init__(self, n_embd, n_head, window_size=4):
        super().__init__()
        self.n_head, self.window_size = n_head, window_size
        self.qkv, self.out = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (s.view(b, t, self.n_head, -1).transpose(1, 2) for s in self.qkv(x).split(c, dim=-1))
        i = torch.arange(t, device=x.device)
        near = (i[:, None] - i[None, :]).abs() < self.window_size
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=near)
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class MaskedSelfAttentionLayer(nn.Module):
    """Padding may be hidden."""

    def __init__(self, n_embd, n_head):
        super().__init__()
        self.n_head = n_head
        self.query, self.key, self.value = nn.Linear(n_embd, n_embd), nn.Linear(n_embd, n_embd), nn.Linear(n_embd, n_embd)

    def forward(self, x, pad_mask=None):
        b, t, c = x.shape
        q, k, v = (f(x).view(b, t, self.n_head, -1).transpose(1, 2) for f in (self.query, self.key, self.value))
        s = q @ k.transpose(2, 3) / (c / self.n_head) ** 0.5
        if pad_mask is not None:
            s = s.masked_fill(pad_mask[:, None, :, None] == 0, -1e9)
        return (torch.softmax(s, 3) @ v).transpose(1, 2).reshape(b, t, c)


class RegularisedAttention(nn.Module):
    def __init__(self, n_embd, n_head, p=0.1):
        super().__init__()
        self.n_head, self.p = n_head, p
        self.q, self.kv = nn.Linear(n_embd, n_embd), nn.Linear(n_embd, 2 * n_embd)

    def forward(self, x):
        b, t, c = x.shape
        heads = lambda z: z.view(b, t, self.n_head, c // self.n_head).transpose(1, 2)
        k, v = self.kv(x).chunk(2, 2)
        w = (heads(self.q(x)) @ heads(k).transpose(2, 3) / (c // self.n_head) ** 0.5).softmax(3)
        w = F.dropout(w, p=self.p)
        return (w @ heads(v)).transpose(1, 2).reshape(b, t, c)
