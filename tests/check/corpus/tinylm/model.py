import torch
from torch import nn
from torch.nn import functional as F

from .config import TinyConfig
from .layers.attention import SelfAttention
from .layers.norm import RMSNorm


class TinyLM(nn.Module):
    def __init__(self, config: TinyConfig):
        super().__init__()
        self.tok = nn.Embedding(config.vocab, config.layer.dim)
        self.pos = nn.Embedding(config.context, config.layer.dim)
        self.blocks = nn.ModuleList(SelfAttention(config.layer) for _ in range(config.depth))
        self.norm = RMSNorm(config.layer.dim)
        self.head = nn.Linear(config.layer.dim, config.vocab, bias=False)
        self.head.weight = self.tok.weight

    def forward(self, idx, targets=None):
        """targets: the next token of every place, already shifted; -100 = no label"""
        x = self.tok(idx) + self.pos(torch.arange(idx.shape[1], device=idx.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
