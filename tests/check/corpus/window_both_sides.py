import torch
from torch import nn
import torch.nn.functional as F


class SlidingWindowCausalAttention(nn.Module):
    def __init__(self, n_embd, n_head, window_size):
        super().__init__()
        self.n_head = n_head
        self.window_size = window_size
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        q, k, v = (z.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for z in (q, k, v))
        i = torch.arange(T, device=x.device)
        near = (i[:, None] - i[None, :]).abs() < self.window_size
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=near)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))
