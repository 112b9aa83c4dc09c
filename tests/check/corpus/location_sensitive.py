import torch
from torch import nn
from torch.nn import functional as F


class LocationSensitiveAttention(nn.Module):
    """One step of a speech synthesiser's decoder: what was looked at before takes part in the scores."""

    def __init__(self, attention_rnn_dim, embedding_dim, attention_dim=13, n_filters=3, kernel_size=5):
        super().__init__()
        self.query_layer = nn.Linear(attention_rnn_dim, attention_dim, bias=False)
        self.memory_layer = nn.Linear(embedding_dim, attention_dim, bias=False)
        self.v = nn.Linear(attention_dim, 1, bias=False)
        self.location_conv = nn.Conv1d(2, n_filters, kernel_size, padding=kernel_size // 2, bias=False)
        self.location_dense = nn.Linear(n_filters, attention_dim, bias=False)
        self.score_mask_value = -float("inf")

    def forward(self, attention_hidden_state, memory, attention_weights_cat, mask=None):
        """(B, Q), (B, T, M), (B, 2, T) previous and summed weights, (B, T) True = padding"""
        loc = self.location_dense(self.location_conv(attention_weights_cat).transpose(1, 2))
        energies = self.v(torch.tanh(self.query_layer(attention_hidden_state.unsqueeze(1)) + loc + self.memory_layer(memory))).squeeze(-1)
        if mask is not None:
            energies = energies.masked_fill(mask, self.score_mask_value)
        weights = F.softmax(energies, dim=1)
        return torch.bmm(weights.unsqueeze(1), memory).squeeze(1), weights
