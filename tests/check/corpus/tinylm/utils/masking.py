import torch


def causal(n, device=None):
    return torch.ones(n, n, dtype=torch.bool, device=device).tril()
