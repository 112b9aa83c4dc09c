import torch


def dot_product_attention(q, k, v, causal=False):
    """(batch, heads, length, channels)"""
    q.mul_(q.size(-1) ** -0.5)
    logits = torch.einsum("bhld,bhmd->bhlm", q, k)
    if causal:
        l, m = logits.shape[-2:]
        logits = logits.masked_fill(torch.ones(l, m).triu(m - l + 1).bool(), float("-inf"))
    return torch.einsum("bhlm,bhmd->bhld", logits.softmax(-1), v)
