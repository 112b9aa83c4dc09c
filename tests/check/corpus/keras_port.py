# Ported from the TensorFlow tutorial. `call` stays `call`.
import torch
from torch import nn


class Layer(nn.Module):
    def forward(self, *args, **kwargs):
        return self.call(*args, **kwargs)


class Dense(Layer):
    def __init__(self, units_in, units):
        super().__init__()
        self.kernel = nn.Parameter(torch.empty(units_in, units))
        self.bias = nn.Parameter(torch.zeros(units))
        nn.init.xavier_uniform_(self.kernel)

    def call(self, inputs):
        return inputs @ self.kernel + self.bias


def scaled_dot_product_attention(q, k, v, mask):
    """mask: shape broadcastable to (..., seq_len_q, seq_len_k). 1 where the position is to be looked past."""
    matmul_qk = torch.matmul(q, k.transpose(-1, -2))
    dk = torch.tensor(k.shape[-1], dtype=torch.float32)
    scaled_attention_logits = matmul_qk / torch.sqrt(dk)
    if mask is not None:
        scaled_attention_logits = scaled_attention_logits + (mask * -1e9)
    attention_weights = torch.softmax(scaled_attention_logits, dim=-1)
    return torch.matmul(attention_weights, v), attention_weights


class MultiHeadAttention(Layer):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.d_model = d_model
        assert d_model % self.num_heads == 0
        self.depth = d_model // self.num_heads
        self.wq = Dense(d_model, d_model)
        self.wk = Dense(d_model, d_model)
        self.wv = Dense(d_model, d_model)
        self.dense = Dense(d_model, d_model)

    def split_heads(self, x, batch_size):
        x = torch.reshape(x, (batch_size, -1, self.num_heads, self.depth))
        return x.permute(0, 2, 1, 3)

    def call(self, v, k, q, mask):
        batch_size = q.shape[0]
        q = self.split_heads(self.wq(q), batch_size)
        k = self.split_heads(self.wk(k), batch_size)
        v = self.split_heads(self.wv(v), batch_size)
        scaled_attention, attention_weights = scaled_dot_product_attention(q, k, v, mask)
        scaled_attention = scaled_attention.permute(0, 2, 1, 3)
        concat_attention = torch.reshape(scaled_attention, (batch_size, -1, self.d_model))
        output = self.dense(concat_attention)
        return output, attention_weights
