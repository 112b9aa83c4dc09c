import torch
import torch.nn as nn
import torch.nn.functional as F


class PositionalEmbedding(nn.Module):
    def __init__(self, demb):
        super(PositionalEmbedding, self).__init__()
        self.demb = demb
        inv_freq = 1 / (10000 ** (torch.arange(0.0, demb, 2.0) / demb))
        self.register_buffer('inv_freq', inv_freq)

    def forward(self, pos_seq, bsz=None):
        sinusoid_inp = torch.outer(pos_seq.to(self.inv_freq), self.inv_freq)
        pos_emb = torch.cat([sinusoid_inp.sin(), sinusoid_inp.cos()], dim=-1)
        if bsz is not None:
            return pos_emb[:, None, :].expand(-1, bsz, -1)
        else:
            return pos_emb[:, None, :]


class RelMultiHeadAttn(nn.Module):
    """Segment-level attention with relative positions. w: (qlen, bsz, d_model), looking back only."""

    def __init__(self, n_head, d_model, d_head, dropout):
        super(RelMultiHeadAttn, self).__init__()
        self.n_head, self.d_model, self.d_head = n_head, d_model, d_head
        self.qkv_net = nn.Linear(d_model, 3 * n_head * d_head, bias=False)
        self.r_net = nn.Linear(d_model, n_head * d_head, bias=False)
        self.o_net = nn.Linear(n_head * d_head, d_model, bias=False)
        self.pos_emb = PositionalEmbedding(d_model)
        self.r_w_bias = nn.Parameter(torch.zeros(n_head, d_head))
        self.r_r_bias = nn.Parameter(torch.zeros(n_head, d_head))
        self.scale = 1 / (d_head ** 0.5)
        self.drop = nn.Dropout(dropout)

    def _rel_shift(self, x):
        zero_pad = torch.zeros((x.size(0), 1, *x.size()[2:]), device=x.device, dtype=x.dtype)
        x_padded = torch.cat([zero_pad, x], dim=1)
        x_padded = x_padded.view(x.size(1) + 1, x.size(0), *x.size()[2:])
        return x_padded[1:].view_as(x)

    def forward(self, w, mems=None):
        qlen, bsz = w.size(0), w.size(1)
        cat = w if mems is None else torch.cat([mems, w], 0)
        w_heads = self.qkv_net(cat)
        klen = cat.size(0)
        r = self.pos_emb(torch.arange(klen - 1, -1, -1.0))
        r_head_k = self.r_net(r.to(w)).view(klen, self.n_head, self.d_head)
        w_head_q, w_head_k, w_head_v = torch.chunk(w_heads, 3, dim=-1)
        w_head_q = w_head_q[-qlen:].view(qlen, bsz, self.n_head, self.d_head)
        w_head_k = w_head_k.reshape(klen, bsz, self.n_head, self.d_head)
        w_head_v = w_head_v.reshape(klen, bsz, self.n_head, self.d_head)
        AC = torch.einsum('ibnd,jbnd->ijbn', (w_head_q + self.r_w_bias, w_head_k))
        BD = torch.einsum('ibnd,jnd->ijbn', (w_head_q + self.r_r_bias, r_head_k))
        BD = self._rel_shift(BD)
        attn_score = (AC + BD).mul(self.scale)
        dec_attn_mask = torch.triu(w.new_ones(qlen, klen), diagonal=1 + klen - qlen).bool()[:, :, None, None]
        attn_score = attn_score.masked_fill(dec_attn_mask, -float('inf'))
        attn_prob = self.drop(F.softmax(attn_score, dim=1))
        attn_vec = torch.einsum('ijbn,jbnd->ibnd', (attn_prob, w_head_v))
        return self.o_net(attn_vec.contiguous().view(qlen, bsz, self.n_head * self.d_head))
