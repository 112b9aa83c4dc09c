import torch
from torch import nn
import torch.nn.functional as F


class NanoLM(nn.Module):
    def __init__(self, vocab_size, n_embd=32, n_head=4, block_size=64):
        super().__init__()
        self.tok = nn.Embedding(vocab_size, n_embd)
        self.pos = nn.Embedding(block_size, n_embd)
        self.attn = nn.MultiheadAttention(n_embd, n_head, batch_first=True)
        self.norm = nn.LayerNorm(n_embd)
        self.head = nn.Linear(n_embd, vocab_size)

    def forward(self, input_ids, labels=None):
        B, T = input_ids.shape
        x = self.tok(input_ids) + self.pos(torch.arange(T, device=input_ids.device))
        tri = torch.ones(T, T, dtype=torch.bool, device=input_ids.device).triu(1)
        x = x + self.attn(self.norm(x), self.norm(x), self.norm(x), attn_mask=tri, need_weights=False)[0]
        logits = self.head(x)
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits[:, 1:].reshape(-1, logits.size(-1)), labels[:, :-1].reshape(-1), ignore_index=-100)
        return logits, loss
