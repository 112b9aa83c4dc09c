import torch
from torch import nn


class ResBlock(nn.Module):
    """Two convolutions; there is no attention here."""

    def __init__(self, in_planes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(in_planes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)

    def forward(self, x):
        return torch.relu(self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))))


class Vocabulary:
    def __init__(self, words):
        self.words = list(words)
        self.index = {w: i for i, w in enumerate(self.words)}

    def encode(self, text):
        return [self.index.get(w, 0) for w in text.split()]


def accuracy(logits, labels):
    return (logits.argmax(-1) == labels).float().mean()
