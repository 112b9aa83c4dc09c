import torch
import torch.nn as nn


class MapAttention(nn.Module):
    """Attention over a map [B, H, W, C], channels last, with a bias of decomposed relative positions."""

    def __init__(self, dim: int, num_heads: int = 8, input_size=(3, 4)):
        super().__init__()
        self.num_heads = num_heads
        head_dim = dim // num_heads
        self.scale = head_dim ** -0.5
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)
        self.rel_pos_h = nn.Parameter(torch.randn(2 * input_size[0] - 1, head_dim) * 0.1)
        self.rel_pos_w = nn.Parameter(torch.randn(2 * input_size[1] - 1, head_dim) * 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        B, H, W, _ = x.shape
        qkv = self.qkv(x).reshape(B, H * W, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.reshape(3, B * self.num_heads, H * W, -1).unbind(0)
        attn = (q * self.scale) @ k.transpose(-2, -1)
        gap = lambda n: torch.arange(n)[:, None] - torch.arange(n)[None, :] + (n - 1)
        r_q = q.reshape(B * self.num_heads, H, W, -1)
        rel_h = torch.einsum("bhwc,hkc->bhwk", r_q, self.rel_pos_h[gap(H)])
        rel_w = torch.einsum("bhwc,wkc->bhwk", r_q, self.rel_pos_w[gap(W)])
        attn = (attn.view(-1, H, W, H, W) + rel_h[:, :, :, :, None] + rel_w[:, :, :, None, :]).view(-1, H * W, H * W)
        attn = attn.softmax(dim=-1)
        x = (attn @ v).view(B, self.num_heads, H, W, -1).permute(0, 2, 3, 1, 4).reshape(B, H, W, -1)
        return self.proj(x)
