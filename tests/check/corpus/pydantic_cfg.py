from pydantic import BaseModel, Field
import torch
from torch import nn


class AttentionParams(BaseModel):
    emb_size: int = Field(..., gt=0)
    head_num: int = Field(4, gt=0)
    p_drop: float = 0.1
    use_bias: bool = True


class ParamAttention(nn.Module):
    def __init__(self, params: AttentionParams):
        super().__init__()
        self.p = params
        self.q, self.k, self.v, self.o = (nn.Linear(params.emb_size, params.emb_size, bias=params.use_bias) for _ in range(4))
        self.drop = nn.Dropout(params.p_drop)

    def forward(self, feats, feats_mask=None):
        """feats_mask: [B, T] bool, True = frame is real"""
        n, t, e = feats.shape
        h = self.p.head_num
        q = self.q(feats).view(n, t, h, e // h).permute(0, 2, 1, 3)
        k = self.k(feats).view(n, t, h, e // h).permute(0, 2, 3, 1)
        v = self.v(feats).view(n, t, h, e // h).permute(0, 2, 1, 3)
        a = torch.matmul(q, k) / (e // h) ** .5
        if feats_mask is not None:
            a = a.masked_fill(~feats_mask.bool()[:, None, None], -65504.0)
        a = self.drop(torch.softmax(a, -1))
        return self.o(torch.matmul(a, v).permute(0, 2, 1, 3).reshape(n, t, e))
