# -*- coding: utf-8 -*-
import numpy as np
import torch
import torch.nn as nn

d_k = 12


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model=48, n_heads=4):
        super(MultiHeadAttention, self).__init__()
        self.n_heads = n_heads
        self.d_model = d_model
        self.W_Q = nn.Linear(d_model, d_k * n_heads, bias=False)
        self.W_K = nn.Linear(d_model, d_k * n_heads, bias=False)
        self.W_V = nn.Linear(d_model, d_k * n_heads, bias=False)
        self.fc = nn.Linear(n_heads * d_k, d_model, bias=False)

    def forward(self, input_Q, input_K, input_V, attn_mask):
        residual, batch_size = input_Q, input_Q.size(0)
        Q = self.W_Q(input_Q).view(batch_size, -1, self.n_heads, d_k).transpose(1, 2)
        K = self.W_K(input_K).view(batch_size, -1, self.n_heads, d_k).transpose(1, 2)
        V = self.W_V(input_V).view(batch_size, -1, self.n_heads, d_k).transpose(1, 2)
        scores = torch.matmul(Q, K.transpose(-1, -2)) / np.sqrt(d_k)
        if attn_mask is not None:
            scores.masked_fill_(attn_mask.bool().unsqueeze(1), -1e9)
        context = torch.matmul(nn.Softmax(dim=-1)(scores), V)
        context = context.transpose(1, 2).reshape(batch_size, -1, self.n_heads * d_k)
        output = self.fc(context)
        return nn.LayerNorm(self.d_model).to(output)(output + residual)
