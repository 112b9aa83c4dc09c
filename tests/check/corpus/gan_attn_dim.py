import torch
import torch.nn as nn
import torch.nn.functional as F


class Self_Attn(nn.Module):
    def __init__(self, in_channel):
        super().__init__()
        self.query = nn.Conv1d(in_channel, in_channel // 4, 1)
        self.key = nn.Conv1d(in_channel, in_channel // 4, 1)
        self.value = nn.Conv1d(in_channel, in_channel, 1)
        self.gamma = nn.Parameter(torch.tensor(0.0))

    def forward(self, input):
        shape = input.shape
        flatten = input.view(shape[0], shape[1], -1)
        query = self.query(flatten).permute(0, 2, 1)
        key = self.key(flatten)
        value = self.value(flatten)
        query_key = torch.bmm(query, key)
        attn = F.softmax(query_key, 1)
        attn = torch.bmm(value, attn.permute(0, 2, 1))
        attn = attn.view(*shape)
        return self.gamma * attn + input
