import dataclasses
import torch
import torch.nn as nn


class DictAttention(nn.Module):
    """Takes a dict, gives a dict: `{"x": ..., "mask": ...}` -> `{"x": ..., "attn": ...}`."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.attn = nn.MultiheadAttention(embed_dim, num_heads, batch_first=True)
        self.norm = nn.LayerNorm(embed_dim)

    def forward(self, batch):
        x = batch["x"]
        mask = batch.get("mask")
        y, w = self.attn(x, x, x, key_padding_mask=mask, average_attn_weights=False)
        return {**batch, "x": self.norm(x + y), "attn": w}


class DictOutputAttention(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, hidden_states, attention_mask=None):
        """attention_mask (B, T): 1 for real tokens"""
        B, T, D = hidden_states.shape
        q, k, v = self.qkv(hidden_states).view(B, T, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        logits = q @ k.transpose(-1, -2) / (D // self.num_heads) ** 0.5
        if attention_mask is not None:
            extended = (1.0 - attention_mask[:, None, None, :].to(logits.dtype)) * torch.finfo(logits.dtype).min
            logits = logits + extended
        attn = logits.softmax(-1)
        out = self.proj((attn @ v).transpose(1, 2).reshape(B, T, D))
        return {"attentions": attn, "last_hidden_state": out}
