# a whole language model in one go
import torch
import torch.nn as nn
import torch.nn.functional as F

vocab_size, block_size, n_embd, n_head, n_layer = 65, 32, 48, 4, 2


class Attn(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)
        self.register_buffer("bias", torch.tril(torch.ones(block_size, block_size)).view(1, 1, block_size, block_size))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(n_embd, dim=2)
        q, k, v = [t.view(B, T, n_head, C // n_head).transpose(1, 2) for t in (q, k, v)]
        att = (q @ k.transpose(-2, -1)) * (1.0 / (C // n_head) ** 0.5)
        att = att.masked_fill(self.bias[:, :, :T, :T] == 1, -1e9)
        att = F.softmax(att, dim=-1)
        return self.c_proj((att @ v).transpose(1, 2).contiguous().view(B, T, C))


class TinyLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab_size, n_embd), nn.Embedding(block_size, n_embd)
        self.blocks = nn.ModuleList(nn.MultiheadAttention(n_embd, n_head, batch_first=True) for _ in range(n_layer))
        self.head = nn.Linear(n_embd, vocab_size)

    def forward(self, idx, targets=None):
        T = idx.shape[1]
        x = self.wte(idx) + self.wpe(torch.arange(T, device=idx.device))
        m = nn.Transformer.generate_square_subsequent_mask(T, device=idx.device).to(x.dtype)
        for b in self.blocks:
            x = x + b(x, x, x, attn_mask=m, need_weights=False)[0]
        logits = self.head(x)
        loss = None if targets is None else F.cross_entropy(logits.view(-1, vocab_size), targets.view(-1))
        return logits, loss
