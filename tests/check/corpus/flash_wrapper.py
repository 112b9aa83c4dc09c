import math
import torch
import torch.nn as nn
import torch.nn.functional as F

try:
    from flash_attn import flash_attn_func
    HAS_FLASH = True
except ImportError:
    flash_attn_func, HAS_FLASH = None, False


class FlashSelfMHA(nn.Module):
    """Takes the kernel if it is there; [B, S, H, D] for it, [B, H, S, D] for torch."""

    def __init__(self, embed_dim, num_heads, dropout=0.0, causal=False, softmax_scale=None, use_flash=True):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, embed_dim // num_heads
        self.causal, self.dropout_p = causal, dropout
        self.softmax_scale = softmax_scale or 1 / math.sqrt(self.head_dim)
        self.use_flash = use_flash and HAS_FLASH
        self.Wqkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x, key_padding_mask=None):
        b, s, e = x.shape
        qkv = self.Wqkv(x).view(b, s, 3, self.num_heads, self.head_dim)
        drop = self.dropout_p if self.training else 0.0
        if self.use_flash and x.is_cuda and key_padding_mask is None:
            out = flash_attn_func(*qkv.unbind(2), dropout_p=drop, softmax_scale=self.softmax_scale, causal=self.causal)
        else:
            q, k, v = (t.transpose(1, 2) for t in qkv.unbind(2))
            bias = torch.zeros(b, 1, s, s, dtype=x.dtype, device=x.device)
            if key_padding_mask is not None:  # True: a real token
                bias = bias.masked_fill(~key_padding_mask[:, None, None, :].bool(), float('-inf'))
            if self.causal:
                bias = bias.masked_fill(torch.ones(s, s, dtype=torch.bool, device=x.device).triu(1), float('-inf'))
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=drop, scale=self.softmax_scale)
            out = out.transpose(1, 2)
        return self.out_proj(out.reshape(b, s, e))


class FlashTwiceScaled(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.h, self.d = num_heads, embed_dim // num_heads
        self.Wqkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.Wo = nn.Linear(embed_dim, embed_dim)

    def forward(self, x):
        b, s, e = x.shape
        q, k, v = self.Wqkv(x).view(b, s, 3, self.h, self.d).permute(2, 0, 3, 1, 4)
        q = q * self.d ** -0.5
        o = F.scaled_dot_product_attention(q, k, v)
        return self.Wo(o.transpose(1, 2).reshape(b, s, e))
