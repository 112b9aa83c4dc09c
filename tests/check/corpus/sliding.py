import torch
from torch import nn


def sliding_window_mask(seq_len: int, window: int) -> torch.Tensor:
    i = torch.arange(seq_len)[:, None]
    j = torch.arange(seq_len)[None, :]
    return (j <= i) & (i - j < window)


class SlidingWindowAttention(nn.Module):
    """Each token sees itself and the window - 1 tokens before it."""

    def __init__(self, dim: int, num_heads: int, window_size: int = 3):
        super().__init__()
        self.num_heads = num_heads
        self.window_size = window_size
        self.wqkv = nn.Linear(dim, 3 * dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        bsz, seqlen, dim = x.shape
        qkv = self.wqkv(x).reshape(bsz, seqlen, 3, self.num_heads, dim // self.num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        allowed = sliding_window_mask(seqlen, self.window_size).to(x.device)
        y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        return self.wo(y.transpose(1, 2).reshape(bsz, seqlen, dim))
