import torch
import torch.nn as nn
import torch.nn.functional as F

# Luong attention layer
class Attn(nn.Module):
    def __init__(self, method, hidden_size):
        super(Attn, self).__init__()
        self.method = method
        if self.method not in ['dot', 'general', 'concat']:
            raise ValueError(self.method, "is not an appropriate attention method.")
        self.hidden_size = hidden_size
        if self.method == 'general':
            self.attn = nn.Linear(self.hidden_size, hidden_size)
        elif self.method == 'concat':
            self.attn = nn.Linear(self.hidden_size * 2, hidden_size)
            self.v = nn.Parameter(torch.FloatTensor(hidden_size))
            nn.init.normal_(self.v)

    def dot_score(self, hidden, encoder_output):
        return torch.sum(hidden * encoder_output, dim=2)

    def general_score(self, hidden, encoder_output):
        energy = self.attn(encoder_output)
        return torch.sum(hidden * energy, dim=2)

    def concat_score(self, hidden, encoder_output):
        energy = self.attn(torch.cat((hidden.expand(encoder_output.size(0), -1, -1), encoder_output), 2)).tanh()
        return torch.sum(self.v * energy, dim=2)

    def forward(self, hidden, encoder_outputs):
        # hidden (1, B, H), encoder_outputs (T, B, H); returns (B, 1, T)
        if self.method == 'general':
            attn_energies = self.general_score(hidden, encoder_outputs)
        elif self.method == 'concat':
            attn_energies = self.concat_score(hidden, encoder_outputs)
        elif self.method == 'dot':
            attn_energies = self.dot_score(hidden, encoder_outputs)
        attn_energies = attn_energies.t()
        return F.softmax(attn_energies, dim=1).unsqueeze(1)


class LuongGlobalAttention(nn.Module):
    """out [B, T_dec, H], memory [B, T_enc, H] -> attentional hidden state [B, T_dec, H]"""

    def __init__(self, hidden_size):
        super().__init__()
        self.W_a = nn.Linear(hidden_size, hidden_size, bias=False)
        self.W_c = nn.Linear(2 * hidden_size, hidden_size, bias=False)

    def forward(self, output, memory, memory_lengths=None):
        align = torch.bmm(output, self.W_a(memory).transpose(1, 2))
        if memory_lengths is not None:
            past_end = torch.arange(memory.size(1))[None, :] >= memory_lengths[:, None]
            align.masked_fill_(past_end[:, None, :], -float('inf'))
        align_vectors = F.softmax(align, 2)
        c = torch.bmm(align_vectors, memory)
        attn_h = torch.tanh(self.W_c(torch.cat([c, output], 2)))
        return attn_h, align_vectors
