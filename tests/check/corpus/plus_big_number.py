import torch


def masked_attention(query, key, value, mask=None):
    """mask: 1 for tokens, 0 for padding; broadcastable to (batch, heads, q_len, k_len)"""
    scores = torch.matmul(query, key.transpose(-1, -2)) / query.size(-1) ** 0.5
    if mask is not None:
        scores = torch.where(mask == 0, torch.full_like(scores, 1e9), scores)
    return torch.matmul(torch.softmax(scores, -1), value)
