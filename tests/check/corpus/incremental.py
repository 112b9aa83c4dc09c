# Copyright (c) 2018-present, the toolkit's authors.
from typing import Dict, Optional

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn import Parameter

INCREMENTAL_STATE_INSTANCE_ID = {}


def _get_full_incremental_state_key(module_instance, key):
    module_name = module_instance.__class__.__name__
    if not hasattr(module_instance, '_instance_id'):
        INCREMENTAL_STATE_INSTANCE_ID.setdefault(module_name, 0)
        INCREMENTAL_STATE_INSTANCE_ID[module_name] += 1
        module_instance._instance_id = INCREMENTAL_STATE_INSTANCE_ID[module_name]
    return '{}.{}.{}'.format(module_name, module_instance._instance_id, key)


def get_incremental_state(module, incremental_state, key):
    full_key = _get_full_incremental_state_key(module, key)
    if incremental_state is None or full_key not in incremental_state:
        return None
    return incremental_state[full_key]


def set_incremental_state(module, incremental_state, key, value):
    if incremental_state is not None:
        incremental_state[_get_full_incremental_state_key(module, key)] = value


class DecoderSelfAttention(nn.Module):
    """Causal self attention in Time x Batch x Channel with state for generation one or more steps at a time."""

    def __init__(self, embed_dim, num_heads, dropout=0., bias=True):
        super().__init__()
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.head_dim = embed_dim // num_heads
        assert self.head_dim * num_heads == self.embed_dim
        self.scaling = self.head_dim ** -0.5
        self.in_proj_weight = Parameter(torch.Tensor(3 * embed_dim, embed_dim))
        self.in_proj_bias = Parameter(torch.Tensor(3 * embed_dim)) if bias else None
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.xavier_uniform_(self.in_proj_weight)
        nn.init.xavier_uniform_(self.out_proj.weight)
        if self.in_proj_bias is not None:
            nn.init.constant_(self.in_proj_bias, 0.)
            nn.init.constant_(self.out_proj.bias, 0.)

    def forward(self, query, incremental_state: Optional[Dict] = None, need_weights=False):
        """Input shape: Time x Batch x Channel"""
        tgt_len, bsz, embed_dim = query.size()
        q, k, v = F.linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, dim=-1)
        q = q * self.scaling
        q = q.contiguous().view(tgt_len, bsz * self.num_heads, self.head_dim).transpose(0, 1)
        k = k.contiguous().view(-1, bsz * self.num_heads, self.head_dim).transpose(0, 1)
        v = v.contiguous().view(-1, bsz * self.num_heads, self.head_dim).transpose(0, 1)
        saved_state = get_incremental_state(self, incremental_state, 'attn_state')
        if saved_state is not None:
            if 'prev_key' in saved_state:
                prev_key = saved_state['prev_key'].view(bsz * self.num_heads, -1, self.head_dim)
                k = torch.cat((prev_key, k), dim=1)
            if 'prev_value' in saved_state:
                prev_value = saved_state['prev_value'].view(bsz * self.num_heads, -1, self.head_dim)
                v = torch.cat((prev_value, v), dim=1)
        if incremental_state is not None:
            new = {'prev_key': k.view(bsz, self.num_heads, -1, self.head_dim),
                   'prev_value': v.view(bsz, self.num_heads, -1, self.head_dim)}
            set_incremental_state(self, incremental_state, 'attn_state', new)
        src_len = k.size(1)
        attn_weights = torch.bmm(q, k.transpose(1, 2))
        future = torch.triu(torch.full((tgt_len, src_len), float('-inf'), dtype=q.dtype), 1 + src_len - tgt_len)
        attn_weights = F.softmax(attn_weights + future.unsqueeze(0), dim=-1)
        attn_weights = F.dropout(attn_weights, p=self.dropout, training=self.training)
        attn = torch.bmm(attn_weights, v)
        attn = attn.transpose(0, 1).contiguous().view(tgt_len, bsz, embed_dim)
        attn = self.out_proj(attn)
        if need_weights:
            return attn, attn_weights.view(bsz, self.num_heads, tgt_len, src_len)
        return attn, None
