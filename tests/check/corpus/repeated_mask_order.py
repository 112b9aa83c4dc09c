import numpy as np
import torch
import torch.nn as nn


class MultiHeadAttention(nn.Module):
    """Heads are folded into the batch: (n*b) x lq x dk, as in many ports"""

    def __init__(self, n_head, d_model):
        super().__init__()
        self.n_head = n_head
        self.d_k = d_model // n_head
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.fc = nn.Linear(d_model, d_model)

    def forward(self, q, k, v, mask=None):
        d_k, n_head = self.d_k, self.n_head
        sz_b, len_q, _ = q.size()
        len_k = k.size(1)
        q = self.w_q(q).view(sz_b, len_q, n_head, d_k).permute(0, 2, 1, 3).contiguous().view(-1, len_q, d_k)
        k = self.w_k(k).view(sz_b, len_k, n_head, d_k).permute(0, 2, 1, 3).contiguous().view(-1, len_k, d_k)
        v = self.w_v(v).view(sz_b, len_k, n_head, d_k).permute(0, 2, 1, 3).contiguous().view(-1, len_k, d_k)
        attn = torch.bmm(q, k.transpose(1, 2)) / np.power(d_k, 0.5)
        if mask is not None:
            mask = mask.repeat(n_head, 1, 1)  # (n*b) x .. x ..
            attn = attn.masked_fill(mask, -1e9)
        attn = attn.softmax(2)
        output = torch.bmm(attn, v).view(sz_b, n_head, len_q, d_k)
        output = output.permute(0, 2, 1, 3).contiguous().view(sz_b, len_q, -1)
        return self.fc(output)
