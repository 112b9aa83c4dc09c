import torch
import torch.nn as nn


class QueryingLayer(nn.Module):
    """Learnt queries look at each other and at an image; image_embeds [B, P, D], image_atts [B, P], 1 = there"""

    def __init__(self, num_query, hidden_size, vision_width, num_heads):
        super().__init__()
        self.query_tokens = nn.Parameter(torch.zeros(1, num_query, hidden_size))
        self.query_tokens.data.normal_(mean=0.0, std=0.02)
        self.vision_proj = nn.Linear(vision_width, hidden_size)
        self.self_attn = nn.MultiheadAttention(hidden_size, num_heads, batch_first=True)
        self.cross_attn = nn.MultiheadAttention(hidden_size, num_heads, batch_first=True)
        self.n1, self.n2 = nn.LayerNorm(hidden_size), nn.LayerNorm(hidden_size)

    def forward(self, image_embeds, image_atts=None):
        q = self.query_tokens.expand(image_embeds.shape[0], -1, -1)
        q = self.n1(q + self.self_attn(q, q, q, need_weights=False)[0])
        kv = self.vision_proj(image_embeds)
        padded = None if image_atts is None else image_atts == 0
        return self.n2(q + self.cross_attn(q, kv, kv, key_padding_mask=padded, need_weights=False)[0])
