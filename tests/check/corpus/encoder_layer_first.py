import torch
from torch import nn


class TextClassifierEncoder(nn.Module):
    def __init__(self, vocab_size, embed_dim=32, num_heads=4, num_layers=2, max_len=64):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.position = nn.Embedding(max_len, embed_dim)
        layer = nn.TransformerEncoderLayer(d_model=embed_dim, nhead=num_heads, dim_feedforward=64)
        self.encoder = nn.TransformerEncoder(layer, num_layers=num_layers, enable_nested_tensor=False)

    def forward(self, input_ids):
        b, t = input_ids.shape
        h = self.embedding(input_ids) + self.position(torch.arange(t))[None]
        return self.encoder(h)
