import torch
from torch import nn
import torch.nn.functional as F
from dataclasses import dataclass


@dataclass
class Config:
    hidden_dim: int = 32
    num_heads: int = 4
    attn_dropout: float = 0.1


class FusedSelfAttention(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.qkv_proj = nn.Linear(config.hidden_dim, 3 * config.hidden_dim)
        self.o_proj = nn.Linear(config.hidden_dim, config.hidden_dim)

    def forward(self, hidden_states):
        B, T, D = hidden_states.shape
        q, k, v = self.qkv_proj(hidden_states).view(B, T, 3, self.config.num_heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.config.attn_dropout, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(B, T, D))
