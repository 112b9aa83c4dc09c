import math
import torch
import torch.nn as nn


class ParallelAttention(nn.Module):
    """[s, b, h]; heads are cut head by head out of one matrix; attention_mask [b, 1, s, s], True = hidden"""

    def __init__(self, hidden_size, num_attention_heads, layer_number=1, attention_dropout=0.0, apply_query_key_layer_scaling=True):
        super().__init__()
        self.layer_number = max(1, layer_number)
        self.coeff = float(self.layer_number) if apply_query_key_layer_scaling else 1.0
        self.np, self.hn = num_attention_heads, hidden_size // num_attention_heads
        self.norm_factor = math.sqrt(self.hn) * self.coeff
        self.query_key_value = nn.Linear(hidden_size, 3 * hidden_size)
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.attention_dropout = nn.Dropout(attention_dropout)

    def forward(self, hidden_states, attention_mask):
        sq, b, h = hidden_states.shape
        mixed = self.query_key_value(hidden_states).view(sq, b, self.np, 3 * self.hn)
        query, key, value = mixed.split(self.hn, dim=-1)
        query = query.reshape(sq, b * self.np, self.hn)
        key = key.reshape(sq, b * self.np, self.hn)
        scores = torch.bmm(query.transpose(0, 1), key.transpose(0, 1).transpose(1, 2)) / self.norm_factor
        scores = scores.view(b, self.np, sq, sq)
        if attention_mask is not None:
            scores = scores.masked_fill(attention_mask, -10000.0)
        probs = self.attention_dropout(torch.softmax(self.coeff * scores, dim=-1))
        value = value.reshape(sq, b * self.np, self.hn)
        context = torch.bmm(probs.view(b * self.np, sq, sq), value.transpose(0, 1))
        context = context.view(b, self.np, sq, self.hn).permute(2, 0, 1, 3).reshape(sq, b, h)
        return self.dense(context)
