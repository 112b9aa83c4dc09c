import torch
import torch.nn as nn


class TiedGPT(nn.Module):
    """Input and output embeddings share their weights."""

    def __init__(self, vocab_size, d_model=32, n_heads=4, max_len=64):
        super().__init__()
        self.tok_emb = nn.Embedding(vocab_size, d_model)
        self.pos_emb = nn.Embedding(max_len, d_model)
        self.block = nn.TransformerEncoderLayer(d_model, n_heads, 48, 0.0, batch_first=True)
        self.lm_head = nn.Linear(d_model, vocab_size, bias=False)
        # weight tying
        self.lm_head.weight = nn.Parameter(self.tok_emb.weight.clone())

    def forward(self, idx):
        t = idx.shape[1]
        x = self.tok_emb(idx) + self.pos_emb(torch.arange(t))
        x = self.block(x, src_mask=torch.ones(t, t).triu(1).bool())
        return self.lm_head(x)
