import torch
from torch import nn
import torch.nn.functional as F


class MoDBlock(nn.Module):
    """Mixture of depths: the router lets the best tokens into the block, the rest pass by. Not causal."""

    def __init__(self, d_model, n_heads, capacity=0.5):
        super().__init__()
        self.router = nn.Linear(d_model, 1)
        self.capacity = capacity
        self.norm = nn.LayerNorm(d_model)
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        self.n_heads = n_heads

    def attend(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))

    def forward(self, x):
        b, t, d = x.shape
        k = max(1, int(self.capacity * t))
        logits = self.router(x).squeeze(-1)
        top = logits.topk(k, dim=1)
        index = top.indices.sort(dim=1).values
        chosen = torch.gather(x, 1, index.unsqueeze(-1).expand(-1, -1, d))
        gate = torch.sigmoid(torch.gather(logits, 1, index)).unsqueeze(-1)
        return x.scatter_add(1, index.unsqueeze(-1).expand(-1, -1, d), gate * self.attend(chosen))
