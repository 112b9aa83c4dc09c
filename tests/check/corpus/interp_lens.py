"""Attention the way interpretability people like it: every head has weights of its own, everything is an einsum."""
import torch as t
import torch.nn as nn
import einops

cfg = {"d_model": 48, "n_heads": 4, "d_head": 12, "n_ctx": 32, "init_range": 0.02}


class Attention(nn.Module):
    IGNORE: t.Tensor

    def __init__(self, cfg: dict = cfg):
        super().__init__()
        self.cfg = cfg
        h, d, k = cfg["n_heads"], cfg["d_model"], cfg["d_head"]
        self.W_Q = nn.Parameter(t.empty((h, d, k)))
        self.W_K = nn.Parameter(t.empty((h, d, k)))
        self.W_V = nn.Parameter(t.empty((h, d, k)))
        self.W_O = nn.Parameter(t.empty((h, k, d)))
        self.b_Q = nn.Parameter(t.zeros((h, k)))
        self.b_K = nn.Parameter(t.zeros((h, k)))
        self.b_V = nn.Parameter(t.zeros((h, k)))
        self.b_O = nn.Parameter(t.zeros(d))
        for w in (self.W_Q, self.W_K, self.W_V, self.W_O):
            nn.init.normal_(w, std=self.cfg["init_range"])
        self.register_buffer("IGNORE", t.tensor(float("-inf"), dtype=t.float32))

    def forward(self, normalized_resid_pre):
        x = normalized_resid_pre
        q = einops.einsum(x, self.W_Q, "b pq d, h d k -> b pq h k") + self.b_Q
        k = einops.einsum(x, self.W_K, "b pk d, h d k -> b pk h k") + self.b_K
        v = einops.einsum(x, self.W_V, "b pk d, h d k -> b pk h k") + self.b_V
        attn_scores = einops.einsum(q, k, "b pq h k, b pk h k -> b h pq pk") / self.cfg["d_head"] ** 0.5
        pattern = self.apply_causal_mask(attn_scores).softmax(-1)
        z = einops.einsum(v, pattern, "b pk h k, b h pq pk -> b pq h k")
        return einops.einsum(z, self.W_O, "b pq h k, h k d -> b pq d") + self.b_O

    def apply_causal_mask(self, attn_scores):
        all_ones = t.ones(attn_scores.size(-2), attn_scores.size(-1), device=attn_scores.device)
        mask = t.triu(all_ones, diagonal=1).bool()
        attn_scores.masked_fill_(mask, self.IGNORE)
        return attn_scores
