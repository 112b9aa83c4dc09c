from torch import nn
from torch.nn import functional as F

from ..config import LayerConfig
from ..utils.masking import causal
from .norm import RMSNorm


class SelfAttention(nn.Module):
    def __init__(self, config: LayerConfig):
        super().__init__()
        self.heads = config.heads
        self.norm = RMSNorm(config.dim)
        self.wqkv = nn.Linear(config.dim, 3 * config.dim, bias=config.bias)
        self.wo = nn.Linear(config.dim, config.dim, bias=config.bias)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = (p.view(b, n, self.heads, -1).transpose(1, 2) for p in self.wqkv(self.norm(x)).split(d, -1))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=causal(n, x.device))
        return x + self.wo(y.transpose(1, 2).reshape(b, n, d))
