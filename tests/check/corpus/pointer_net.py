import torch
import torch.nn as nn
import torch.nn.functional as F


class Pointer(nn.Module):
    """Where to point: for every step of the decoder a distribution over the inputs (log-probabilities)."""

    def __init__(self, hidden_size):
        super(Pointer, self).__init__()
        self.W1 = nn.Linear(hidden_size, hidden_size, bias=False)
        self.W2 = nn.Linear(hidden_size, hidden_size, bias=False)
        self.vt = nn.Linear(hidden_size, 1, bias=False)

    def forward(self, decoder_state, encoder_outputs, mask=None):
        # decoder_state (B, T, H), encoder_outputs (B, S, H) -> (B, T, S)
        encoder_transform = self.W1(encoder_outputs).unsqueeze(1)
        decoder_transform = self.W2(decoder_state).unsqueeze(2)
        u_i = self.vt(torch.tanh(encoder_transform + decoder_transform)).squeeze(-1)
        if mask is not None:
            u_i = u_i.masked_fill(~mask[:, None, :], float('-inf'))
        return F.log_softmax(u_i, dim=-1)
