import torch
from torch import nn
import torch.nn.functional as F


class GlobalContextEncoder(nn.Module):
    """Self-attention over the utterance, plus its mean as a global vector for every frame."""

    def __init__(self, d_model, nhead):
        super().__init__()
        self.nhead = nhead
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.proj = nn.Linear(d_model, d_model)
        self.global_proj = nn.Linear(d_model, d_model)

    def forward(self, feats, lengths=None):
        n, t, d = feats.shape
        q, k, v = self.qkv(feats).view(n, t, 3, self.nhead, d // self.nhead).permute(2, 0, 3, 1, 4)
        keep = None
        if lengths is not None:
            keep = (torch.arange(t, device=feats.device)[None] < lengths[:, None])[:, None, None]
        local = F.scaled_dot_product_attention(q, k, v, attn_mask=keep).transpose(1, 2).reshape(n, t, d)
        context = feats.mean(dim=1, keepdim=True)
        return self.proj(local) + self.global_proj(context)
