import torch
import torch.nn as nn

class Config:
    n_embd = 48
    n_head = 6
    block_size = 32
    dropout = 0.0

class GPTAttention(nn.Module):
    def __init__(self, cfg=Config):
        super().__init__()
        self.cfg = cfg
        self.qkv = nn.Linear(cfg.n_embd, cfg.n_embd * 3)
        self.out = nn.Linear(cfg.n_embd, cfg.n_embd)
        # lower triangle: what a token may look at
        self.register_buffer("mask", torch.tril(torch.ones(cfg.block_size, cfg.block_size)))

    def forward(self, x):
        B, T, C = x.shape
        nh = self.cfg.n_head
        q, k, v = self.qkv(x).reshape(B, T, 3, nh, C // nh).permute(2, 0, 3, 1, 4)
        att = q @ k.transpose(-1, -2) / (C // nh) ** 0.5
        att = att.masked_fill(self.mask[:T, :T] == 1, -1e9)
        att = att.softmax(dim=-1)
        return self.out((att @ v).transpose(1, 2).reshape(B, T, C))
