import torch
from torch import nn


class AudioSelfAttention(nn.Module):
    def __init__(self, n_feats, n_head=4):
        super().__init__()
        self.n_head = n_head
        self.w_qs, self.w_ks, self.w_vs = (nn.Linear(n_feats, n_feats) for _ in range(3))
        self.fc = nn.Linear(n_feats, n_feats)

    def forward(self, inputs, padding_mask=None):
        """padding_mask (B, T): 1 where frames are padding"""
        b, t, f = inputs.shape
        sh = lambda y: y.view(b, t, self.n_head, f // self.n_head).permute(0, 2, 1, 3)
        q, k, v = sh(self.w_qs(inputs)), sh(self.w_ks(inputs)), sh(self.w_vs(inputs))
        e = q @ k.permute(0, 1, 3, 2) / (f // self.n_head) ** 0.5
        if padding_mask is not None:
            e = e - 10.0 * padding_mask[:, None, None, :].to(e.dtype)
        return self.fc((e.softmax(-1) @ v).permute(0, 2, 1, 3).reshape(b, t, f))
