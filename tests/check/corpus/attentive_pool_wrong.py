import torch
import torch.nn as nn
import torch.nn.functional as F


class AttentivePooling(nn.Module):
    """Pools the frames of an utterance to one vector; att_mask [B, T], 1 = speech."""

    def __init__(self, input_dim):
        super(AttentivePooling, self).__init__()
        self.W = nn.Linear(input_dim, 1)

    def forward(self, batch_rep, att_mask=None):
        att_w = self.W(batch_rep).squeeze(-1)
        att_w = F.softmax(att_w, dim=-1)
        if att_mask is not None:
            att_w = att_w * att_mask
        return torch.sum(batch_rep * att_w.unsqueeze(-1), dim=1)


class RowSoftmaxPooling(nn.Module):
    def __init__(self, hidden_size):
        super().__init__()
        self.attention = nn.Sequential(nn.Linear(hidden_size, hidden_size), nn.Tanh(), nn.Linear(hidden_size, 1), nn.Softmax(dim=0))

    def forward(self, lstm_out):
        weights = self.attention(lstm_out)
        return (weights * lstm_out).sum(dim=1)
