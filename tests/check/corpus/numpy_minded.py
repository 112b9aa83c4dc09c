"""Everything is a function; parameters are arguments. After a well-known sixty-line GPT."""
import torch


def gelu(x):
    return 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))


def softmax(x):
    exp_x = torch.exp(x - torch.amax(x, dim=-1, keepdim=True))
    return exp_x / torch.sum(exp_x, dim=-1, keepdim=True)


def layer_norm(x, g, b, eps: float = 1e-5):
    mean = torch.mean(x, dim=-1, keepdim=True)
    variance = torch.var(x, dim=-1, keepdim=True, unbiased=False)
    return g * (x - mean) / torch.sqrt(variance + eps) + b


def rms_norm(x, weight, eps=1e-6):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def linear(x, w, b):
    return x @ w + b


def ffn(x, w_fc, b_fc, w_proj, b_proj):
    return linear(gelu(linear(x, w_fc, b_fc)), w_proj, b_proj)


def attention(q, k, v, mask):  # [n_q, d_k], [n_k, d_k], [n_k, d_v], [n_q, n_k] -> [n_q, d_v]
    return softmax(q @ k.T / q.shape[-1] ** 0.5 + mask) @ v
