import copy
from typing import Optional
import torch
import torch.nn.functional as F
from torch import nn, Tensor


class TransformerEncoderLayer(nn.Module):
    def __init__(self, d_model, nhead, dim_feedforward=2048, dropout=0.1, activation="relu", normalize_before=False):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(d_model, nhead, dropout=dropout)
        self.linear1, self.dropout, self.linear2 = nn.Linear(d_model, dim_feedforward), nn.Dropout(dropout), nn.Linear(dim_feedforward, d_model)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.dropout1, self.dropout2 = nn.Dropout(dropout), nn.Dropout(dropout)
        self.activation = {"relu": F.relu, "gelu": F.gelu}[activation]
        self.normalize_before = normalize_before

    def with_pos_embed(self, tensor, pos: Optional[Tensor]):
        return tensor if pos is None else tensor + pos

    def forward(self, src, src_mask: Optional[Tensor] = None, src_key_padding_mask: Optional[Tensor] = None, pos: Optional[Tensor] = None):
        if self.normalize_before:
            src2 = self.norm1(src)
            q = k = self.with_pos_embed(src2, pos)
            src = src + self.dropout1(self.self_attn(q, k, value=src2, attn_mask=src_mask, key_padding_mask=src_key_padding_mask)[0])
            src2 = self.norm2(src)
            return src + self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(src2)))))
        q = k = self.with_pos_embed(src, pos)
        src = self.norm1(src + self.dropout1(self.self_attn(q, k, value=src, attn_mask=src_mask, key_padding_mask=src_key_padding_mask)[0]))
        return self.norm2(src + self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(src))))))


class TransformerEncoder(nn.Module):
    """A stack of layers."""

    def __init__(self, d_model=32, nhead=4, num_layers=2):
        super().__init__()
        layer = TransformerEncoderLayer(d_model, nhead, 64, 0.0)
        self.layers = nn.ModuleList([copy.deepcopy(layer) for _ in range(num_layers)])

    def forward(self, src, mask: Optional[Tensor] = None, src_key_padding_mask: Optional[Tensor] = None, pos: Optional[Tensor] = None):
        for layer in self.layers:
            src = layer(src, src_mask=mask, pos=pos)
        return src
