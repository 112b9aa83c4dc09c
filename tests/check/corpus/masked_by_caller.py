import torch
from torch import nn
import torch.nn.functional as F


class MaskedMultiHeadAttention(nn.Module):
    """'Masked' because the caller may give a mask; without one everything is seen."""

    def __init__(self, model_dimension, number_of_heads, dropout_probability=0.1):
        super().__init__()
        assert model_dimension % number_of_heads == 0
        self.head_dimension = int(model_dimension / number_of_heads)
        self.number_of_heads = number_of_heads
        self.qkv_nets = nn.ModuleList([nn.Linear(model_dimension, model_dimension) for _ in range(3)])
        self.out_projection_net = nn.Linear(model_dimension, model_dimension)
        self.attention_dropout = nn.Dropout(p=dropout_probability)

    def forward(self, query, key, value, mask):
        batch_size = query.shape[0]
        query, key, value = [net(x).view(batch_size, -1, self.number_of_heads, self.head_dimension).transpose(1, 2)
                             for net, x in zip(self.qkv_nets, (query, key, value))]
        scores = torch.matmul(query, key.transpose(-2, -1)) / self.head_dimension ** 0.5
        if mask is not None:
            scores.masked_fill_(mask == torch.tensor(False), float("-inf"))
        weights = self.attention_dropout(F.softmax(scores, dim=-1))
        reshaped = torch.matmul(weights, value).transpose(1, 2).reshape(batch_size, -1, self.number_of_heads * self.head_dimension)
        return self.out_projection_net(reshaped)


class CausalLMBlock(nn.Module):
    """A block of a language model; whoever calls it brings the triangle."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.attn = nn.MultiheadAttention(d_model, n_heads, batch_first=True)

    def forward(self, x, attn_mask=None):
        h = self.norm(x)
        return x + self.attn(h, h, h, attn_mask=attn_mask, need_weights=False)[0]
