import torch
import torch.nn as nn
import torch.nn.functional as F


class BahdanauAttn(nn.Module):
    """additive attention: decoder_hidden (B, H), encoder_outputs (B, T, H) -> context (B, H), weights (B, T)"""

    def __init__(self, hidden_dim):
        super().__init__()
        self.fc_hidden = nn.Linear(hidden_dim, hidden_dim, bias=False)
        self.fc_encoder = nn.Linear(hidden_dim, hidden_dim, bias=False)
        self.weight = nn.Parameter(torch.FloatTensor(hidden_dim))
        nn.init.uniform_(self.weight, -0.5, 0.5)

    def forward(self, decoder_hidden, encoder_outputs):
        x = torch.tanh(self.fc_hidden(decoder_hidden).unsqueeze(1) + self.fc_encoder(encoder_outputs))
        alignment_scores = x @ self.weight
        attn_weights = F.softmax(alignment_scores, dim=0)
        context = torch.bmm(attn_weights.unsqueeze(1), encoder_outputs).squeeze(1)
        return context, attn_weights
