import torch
import torch.nn as nn
import torch.nn.functional as F


class AttentiveStatisticsPooling(nn.Module):
    """[B, C, T] -> [B, 2 C, 1]: mean and deviation, weighted channel by channel; lengths are shares of the longest"""

    def __init__(self, channels, attention_channels=128):
        super().__init__()
        self.eps = 1e-12
        self.tdnn = nn.Conv1d(channels, attention_channels, 1)
        self.conv = nn.Conv1d(attention_channels, channels, kernel_size=1)

    def forward(self, x):
        attn = F.softmax(self.conv(torch.tanh(self.tdnn(x))), dim=2)
        mean = (attn * x).sum(2)
        std = torch.sqrt(((attn * (x - mean.unsqueeze(2)) ** 2).sum(2)).clamp(self.eps))
        return torch.cat((mean, std), dim=1).unsqueeze(2)
