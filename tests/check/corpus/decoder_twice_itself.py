import torch
import torch.nn as nn


class DecoderLayer(nn.Module):
    def __init__(self, d_model, ffn_hidden, n_head, drop_prob):
        super(DecoderLayer, self).__init__()
        self.self_attention = nn.MultiheadAttention(d_model, n_head, batch_first=True)
        self.norm1 = nn.LayerNorm(d_model)
        self.dropout1 = nn.Dropout(p=drop_prob)
        self.enc_dec_attention = nn.MultiheadAttention(d_model, n_head, batch_first=True)
        self.norm2 = nn.LayerNorm(d_model)
        self.dropout2 = nn.Dropout(p=drop_prob)
        self.ffn = nn.Sequential(nn.Linear(d_model, ffn_hidden), nn.ReLU(), nn.Linear(ffn_hidden, d_model))
        self.norm3 = nn.LayerNorm(d_model)

    def forward(self, dec, enc, t_mask=None):
        _x = dec
        x = self.self_attention(dec, dec, dec, attn_mask=t_mask, need_weights=False)[0]
        x = self.norm1(self.dropout1(x) + _x)
        if enc is not None:
            _x = x
            x = self.enc_dec_attention(x, x, x, need_weights=False)[0]
            x = self.norm2(self.dropout2(x) + _x)
        return self.norm3(self.ffn(x) + x)
