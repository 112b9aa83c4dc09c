import torch
from torch import nn


class MemoryKVAttention(nn.Module):
    """Learnt keys and values stand before those of the text; a mask of the text is widened for them."""

    def __init__(self, dim, heads=4, num_mem_kv=2):
        super().__init__()
        self.heads, self.num_mem_kv = heads, num_mem_kv
        self.to_qkv = nn.Linear(dim, dim * 3, bias=False)
        self.mem_k = nn.Parameter(torch.randn(heads, num_mem_kv, dim // heads))
        self.mem_v = nn.Parameter(torch.randn(heads, num_mem_kv, dim // heads))
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x, mask=None):
        b, n, d = x.shape
        q, k, v = (t.reshape(b, n, self.heads, -1).transpose(1, 2) for t in self.to_qkv(x).chunk(3, dim=-1))
        k = torch.cat((self.mem_k.expand(b, -1, -1, -1), k), dim=2)
        v = torch.cat((self.mem_v.expand(b, -1, -1, -1), v), dim=2)
        dots = torch.einsum("bhid,bhjd->bhij", q, k) * (d // self.heads) ** -0.5
        if mask is not None:
            mask = torch.nn.functional.pad(mask, (self.num_mem_kv, 0), value=True)
            dots = dots.masked_fill(~mask[:, None, None, :], -torch.finfo(dots.dtype).max)
        out = torch.einsum("bhij,bhjd->bhid", dots.softmax(dim=-1), v)
        return self.to_out(out.transpose(1, 2).reshape(b, n, d))
