import torch
from torch import nn


class BahdanauAttention(nn.Module):
    """After a tutorial of another framework: query (batch, hidden), values (batch, max_len, hidden); weights (batch, max_len, 1)"""

    def __init__(self, units, in_features):
        super().__init__()
        self.W1 = nn.Linear(in_features, units)
        self.W2 = nn.Linear(in_features, units)
        self.V = nn.Linear(units, 1)

    def call(self, query, values):
        hidden_with_time_axis = query.unsqueeze(1)
        score = self.V(torch.tanh(self.W1(values) + self.W2(hidden_with_time_axis)))
        attention_weights = torch.softmax(score, dim=1)
        context_vector = (attention_weights * values).sum(dim=1)
        return context_vector, attention_weights

    def forward(self, query, values):
        return self.call(query, values)
