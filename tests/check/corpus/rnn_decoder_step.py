import torch
import torch.nn as nn


class AttnDecoderStep(nn.Module):
    """One step of a decoder: the last hidden state of an LSTM, (h, c) each [1, B, H], looks at encoder_outputs [B, S, H]"""

    def __init__(self, hidden_size):
        super().__init__()
        self.energy = nn.Linear(hidden_size * 2, hidden_size)
        self.score = nn.Linear(hidden_size, 1, bias=False)

    def forward(self, hidden, encoder_outputs, src_lengths=None):
        h, _ = hidden
        steps = encoder_outputs.size(1)
        repeated = h[-1].unsqueeze(1).repeat(1, steps, 1)
        scores = self.score(torch.tanh(self.energy(torch.cat((repeated, encoder_outputs), dim=2)))).squeeze(2)
        if src_lengths is not None:
            scores = scores.masked_fill(torch.arange(steps)[None] >= src_lengths[:, None], -1e9)
        weights = torch.softmax(scores, dim=1)
        return torch.bmm(weights.unsqueeze(1), encoder_outputs).squeeze(1), weights
