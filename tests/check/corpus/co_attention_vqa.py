import torch
import torch.nn as nn


class StackedAttention(nn.Module):
    """A question [B, D] looks at the regions of an image [B, R, D]; the answer's features [B, D]"""

    def __init__(self, d=512, k=64, dropout=True):
        super(StackedAttention, self).__init__()
        self.ff_image = nn.Linear(d, k)
        self.ff_ques = nn.Linear(d, k)
        self.dropout = nn.Dropout(p=0.5) if dropout else None
        self.ff_attention = nn.Linear(k, 1)

    def forward(self, vi, vq):
        hi = self.ff_image(vi)
        hq = self.ff_ques(vq).unsqueeze(dim=1)
        ha = torch.tanh(hi + hq)
        if self.dropout:
            ha = self.dropout(ha)
        pi = torch.softmax(self.ff_attention(ha), dim=1)
        self.pi = pi
        vi_attended = (pi * vi).sum(dim=1)
        return vi_attended + vq
