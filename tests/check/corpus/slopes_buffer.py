import torch
from torch import nn, Tensor


class LinearBiasAttention(nn.Module):
    slopes: Tensor

    def __init__(self, model_dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.in_proj = nn.Linear(model_dim, 3 * model_dim)
        self.out_proj = nn.Linear(model_dim, model_dim)
        self.register_buffer("slopes", torch.pow(2.0, -(8.0 / num_heads) * torch.arange(num_heads)))

    def bias(self, n: int) -> Tensor:
        distance = torch.arange(n)[None, :] - torch.arange(n)[:, None]
        future = torch.full((n, n), float("-inf")).triu(1)
        return self.slopes[:, None, None] * distance + future

    def forward(self, x: Tensor) -> Tensor:
        b, n, d = x.shape
        q, k, v = self.in_proj(x).view(b, n, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=self.bias(n).to(q.dtype))
        return self.out_proj(y.transpose(1, 2).reshape(b, n, d))
