import torch
from torch import nn, Tensor


class BatchedAttention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.to_qkv = nn.Linear(dim, dim * 3)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """attention_mask: bool [batch, tokens], True for real tokens"""
        b, n, d = x.shape
        q, k, v = self.to_qkv(x).reshape(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind()
        bias = None
        if attention_mask is not None:
            bias = torch.zeros(n, n, dtype=x.dtype).masked_fill(~attention_mask[0].bool()[None, :], float("-inf"))
        out = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.to_out(out.transpose(1, 2).flatten(2))
