import math
import numpy as np
import torch
import torch.nn as nn


class PositionalEncoder(nn.Module):
    def __init__(self, d_model, max_seq_len=80):
        super().__init__()
        self.d_model = d_model
        # create constant 'pe' matrix with values dependant on pos and i
        pe = torch.zeros(max_seq_len, d_model)
        for pos in range(max_seq_len):
            for i in range(0, d_model, 2):
                pe[pos, i] = math.sin(pos / (10000 ** ((2 * i) / d_model)))
                pe[pos, i + 1] = math.cos(pos / (10000 ** ((2 * (i + 1)) / d_model)))
        pe = pe.unsqueeze(0)
        self.register_buffer('pe', pe)

    def forward(self, x):
        # make embeddings relatively larger
        x = x * math.sqrt(self.d_model)
        seq_len = x.size(1)
        x = x + self.pe[:, :seq_len]
        return x


class PositionEncodingFloor(nn.Module):
    def __init__(self, d_model, max_len=256):
        super().__init__()
        pe = torch.zeros(max_len, d_model)
        position = torch.arange(0, max_len).float().unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model // 2))
        pe[:, 0::2] = torch.sin(position * div_term)
        pe[:, 1::2] = torch.cos(position * div_term)
        self.register_buffer('pe', pe.unsqueeze(0), persistent=False)

    def forward(self, x):
        return x + self.pe[:, :x.size(1)]


class PositionalEncoding(nn.Module):
    def __init__(self, dim, max_length=128):
        super().__init__()
        pos = torch.arange(max_length, dtype=torch.float32)[:, None]
        i = torch.arange(0, dim, 2, dtype=torch.float32)
        angle = pos * torch.exp(-math.log(10000.0) * i / dim)
        enc = torch.zeros(1, max_length, dim)
        enc[0, :, 0::2] = angle.sin()
        enc[0, :, 1::2] = angle.cos()
        self.register_buffer("enc", enc)

    def forward(self, x):
        return x + self.enc[:, x.size(1)]


def sinusoid_table(n_position, d_hid):
    def angle(pos, i):
        return pos / np.power(1000, 2 * (i // 2) / d_hid)
    t = np.array([[angle(p, i) for i in range(d_hid)] for p in range(n_position)])
    t[:, 0::2] = np.sin(t[:, 0::2])
    t[:, 1::2] = np.cos(t[:, 1::2])
    return torch.from_numpy(t)
