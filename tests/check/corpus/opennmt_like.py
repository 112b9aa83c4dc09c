"""Global attention of a translation toolkit: source [B, T_t, D] asks memory_bank [B, T_s, D], lengths tell what is there."""
import torch
import torch.nn as nn
import torch.nn.functional as F


def sequence_mask(lengths, max_len=None):
    batch_size = lengths.numel()
    max_len = max_len or lengths.max()
    return torch.arange(0, max_len, device=lengths.device).type_as(lengths).repeat(batch_size, 1).lt(lengths.unsqueeze(1))


class GlobalAttention(nn.Module):
    def __init__(self, dim, coverage=False, attn_type="dot", attn_func="softmax"):
        super(GlobalAttention, self).__init__()
        self.dim = dim
        assert attn_type in ["dot", "general", "mlp"], "Please select a valid attention type (got {:s}).".format(attn_type)
        self.attn_type = attn_type
        assert attn_func in ["softmax"], "Please select a valid attention function."
        self.attn_func = attn_func
        if self.attn_type == "general":
            self.linear_in = nn.Linear(dim, dim, bias=False)
        elif self.attn_type == "mlp":
            self.linear_context = nn.Linear(dim, dim, bias=False)
            self.linear_query = nn.Linear(dim, dim, bias=True)
            self.v = nn.Linear(dim, 1, bias=False)
        out_bias = self.attn_type == "mlp"
        self.linear_out = nn.Linear(dim * 2, dim, bias=out_bias)
        if coverage:
            self.linear_cover = nn.Linear(1, dim, bias=False)

    def score(self, h_t, h_s):
        src_batch, src_len, src_dim = h_s.size()
        tgt_batch, tgt_len, tgt_dim = h_t.size()
        if self.attn_type in ["general", "dot"]:
            if self.attn_type == "general":
                h_t = self.linear_in(h_t.view(tgt_batch * tgt_len, tgt_dim)).view(tgt_batch, tgt_len, tgt_dim)
            return torch.bmm(h_t, h_s.transpose(1, 2))
        dim = self.dim
        wq = self.linear_query(h_t.view(-1, dim)).view(tgt_batch, tgt_len, 1, dim).expand(tgt_batch, tgt_len, src_len, dim)
        uh = self.linear_context(h_s.contiguous().view(-1, dim)).view(src_batch, 1, src_len, dim)
        return self.v(torch.tanh(wq + uh.expand(src_batch, tgt_len, src_len, dim))).view(tgt_batch, tgt_len, src_len)

    def forward(self, source, memory_bank, memory_lengths=None, coverage=None):
        one_step = source.dim() == 2
        if one_step:
            source = source.unsqueeze(1)
        batch, source_l, dim = memory_bank.size()
        batch_, target_l, dim_ = source.size()
        if coverage is not None:
            memory_bank = torch.tanh(memory_bank + self.linear_cover(coverage.view(-1).unsqueeze(1)).view_as(memory_bank))
        align = self.score(source, memory_bank)
        if memory_lengths is not None:
            mask = sequence_mask(memory_lengths, max_len=align.size(-1)).unsqueeze(1)
            align.masked_fill_(~mask, -float("inf"))
        align_vectors = F.softmax(align.view(batch * target_l, source_l), -1).view(batch, target_l, source_l)
        c = torch.bmm(align_vectors, memory_bank)
        concat_c = torch.cat([c, source], 2).view(batch * target_l, dim * 2)
        attn_h = self.linear_out(concat_c).view(batch, target_l, dim)
        if self.attn_type in ["general", "dot"]:
            attn_h = torch.tanh(attn_h)
        if one_step:
            return attn_h.squeeze(1), align_vectors.squeeze(1)
        return attn_h.transpose(0, 1).contiguous(), align_vectors.transpose(0, 1).contiguous()
