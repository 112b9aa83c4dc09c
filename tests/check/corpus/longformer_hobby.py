import torch
import torch.nn as nn
import torch.nn.functional as F


class LongSelfAttention(nn.Module):
    """A band on both sides and a few tokens that see and are seen by all; global_attention is 1 for these."""

    def __init__(self, config):
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.head_dim = config.hidden_size // config.num_attention_heads
        self.one_sided = config.attention_window // 2
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = config.attention_probs_dropout_prob

    def forward(self, hidden_states, attention_mask=None, global_attention=None):
        b, t, d = hidden_states.size()
        heads = lambda x: x.view(b, t, self.num_heads, self.head_dim).transpose(1, 2)
        q, k, v = heads(self.query(hidden_states)), heads(self.key(hidden_states)), heads(self.value(hidden_states))
        q = q / self.head_dim ** 0.5
        i = torch.arange(t, device=hidden_states.device)
        near = (i[:, None] - i[None, :]).abs() <= self.one_sided
        allowed = near[None].expand(b, t, t)
        if global_attention is not None:
            g = global_attention.bool()
            allowed = allowed | g[:, None, :] | g[:, :, None]
        if attention_mask is not None:
            allowed = allowed & attention_mask.bool()[:, None, :]
        scores = (q @ k.transpose(-1, -2)).masked_fill(~allowed[:, None], torch.finfo(q.dtype).min)
        probs = F.dropout(scores.softmax(-1), p=self.dropout, training=self.training)
        return (probs @ v).transpose(1, 2).reshape(b, t, d)
