import torch


def split(x, heads):
    """(b, n, h * d) -> (b, h, n, d)"""
    b, n, c = x.shape
    return x.reshape(b, heads, n, c // heads)


def merge(x):
    b, h, n, d = x.shape
    return x.transpose(1, 2).reshape(b, n, h * d)
