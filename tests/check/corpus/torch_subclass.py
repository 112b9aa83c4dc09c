import torch
from torch import nn


class SelfMHA(nn.MultiheadAttention):
    """torch's own, called with one stream."""

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads, batch_first=True)

    def forward(self, x, key_padding_mask=None):
        return super().forward(x, x, x, key_padding_mask=key_padding_mask, need_weights=False)[0]


class FunctionalMHA(nn.Module):
    """Weights of its own, given to torch's function; (L, N, E)."""

    def __init__(self, n_units, n_heads):
        super().__init__()
        self.n_units, self.n_heads = n_units, n_heads
        self.in_proj_weight = nn.Parameter(torch.randn(3 * n_units, n_units) * n_units ** -0.5)
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * n_units))
        self.out_proj_weight = nn.Parameter(torch.randn(n_units, n_units) * n_units ** -0.5)
        self.out_proj_bias = nn.Parameter(torch.zeros(n_units))

    def forward(self, query, key, value, key_padding_mask=None, attn_mask=None):
        out, _ = nn.functional.multi_head_attention_forward(
            query, key, value, self.n_units, self.n_heads, self.in_proj_weight, self.in_proj_bias,
            None, None, False, 0.0, self.out_proj_weight, self.out_proj_bias, training=self.training,
            key_padding_mask=key_padding_mask, need_weights=False, attn_mask=attn_mask)
        return out
