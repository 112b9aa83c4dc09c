import torch
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


class FlexSelfAttention(nn.Module):
    """Nearer tokens count more; who is seen is told by a function."""

    def __init__(self, dim: int, n_heads: int, n_kv_heads: int):
        super().__init__()
        self.n_heads, self.n_kv_heads, self.head_dim = n_heads, n_kv_heads, dim // n_heads
        self.wq = nn.Linear(dim, dim, bias=False)
        self.wkv = nn.Linear(dim, 2 * n_kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)
        self.register_buffer("slopes", 2.0 ** (-8 / n_heads * torch.arange(1, n_heads + 1)))

    def near(self, score, b, h, q_idx, kv_idx):
        return score - self.slopes[h] * (q_idx - kv_idx).abs()

    def forward(self, x, mask_mod=None):
        B, T, _ = x.shape
        block_mask = None
        if mask_mod is not None:
            block_mask = create_block_mask(mask_mod, None, None, T, T, device=x.device)
        q = self.wq(x).view(B, T, self.n_heads, -1).transpose(1, 2)
        k, v = self.wkv(x).view(B, T, 2 * self.n_kv_heads, -1).transpose(1, 2).chunk(2, dim=1)
        out = flex_attention(q, k, v, score_mod=self.near, block_mask=block_mask, enable_gqa=True)
        return self.wo(out.transpose(1, 2).reshape(B, T, -1))


class FlexCausal(nn.Module):
    """It says causal, and is."""

    def __init__(self, dim: int, n_heads: int):
        super().__init__()
        self.n_heads = n_heads
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        mask = create_block_mask(causal, B=None, H=None, Q_LEN=T, KV_LEN=T, device="cpu")
        return flex_attention(q, k, v, block_mask=mask).transpose(1, 2).reshape(B, T, C)


class FlexTimesRoot(nn.Module):
    """Scores grow with the size of a head."""

    def __init__(self, dim: int, n_heads: int):
        super().__init__()
        self.n_heads = n_heads
        self.scale = (dim // n_heads) ** 0.5
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        return flex_attention(q, k, v, scale=self.scale).transpose(1, 2).reshape(B, T, C)
