import numpy as np
import torch


class PointWiseFeedForward(torch.nn.Module):
    def __init__(self, hidden_units, dropout_rate):
        super(PointWiseFeedForward, self).__init__()
        self.conv1 = torch.nn.Conv1d(hidden_units, hidden_units, kernel_size=1)
        self.dropout1 = torch.nn.Dropout(p=dropout_rate)
        self.relu = torch.nn.ReLU()
        self.conv2 = torch.nn.Conv1d(hidden_units, hidden_units, kernel_size=1)
        self.dropout2 = torch.nn.Dropout(p=dropout_rate)

    def forward(self, inputs):
        outputs = self.dropout2(self.conv2(self.relu(self.dropout1(self.conv1(inputs.transpose(-1, -2))))))
        outputs = outputs.transpose(-1, -2)  # as Conv1D requires (N, C, Length)
        outputs += inputs
        return outputs


class SASRecBlock(torch.nn.Module):
    def __init__(self, hidden_units, num_heads, dropout_rate):
        super().__init__()
        self.attention_layernorm = torch.nn.LayerNorm(hidden_units, eps=1e-8)
        self.attention_layer = torch.nn.MultiheadAttention(hidden_units, num_heads, dropout_rate)
        self.forward_layernorm = torch.nn.LayerNorm(hidden_units, eps=1e-8)
        self.forward_layer = PointWiseFeedForward(hidden_units, dropout_rate)

    def forward(self, seqs):
        tl = seqs.shape[1]  # time dim len for enforce causality
        attention_mask = ~torch.tril(torch.ones((tl, tl), dtype=torch.bool))
        seqs = torch.transpose(seqs, 0, 1)
        Q = self.attention_layernorm(seqs)
        mha_outputs, _ = self.attention_layer(Q, seqs, seqs, attn_mask=attention_mask)
        seqs = Q + mha_outputs
        seqs = torch.transpose(seqs, 0, 1)
        return self.forward_layer(self.forward_layernorm(seqs))
