"""Windows with cosine scores and a small network for the bias, as the second generation has it."""
import math
import torch
import torch.nn as nn
import torch.nn.functional as F


def window_partition(x, window_size):
    B, H, W, C = x.shape
    x = x.view(B, H // window_size, window_size, W // window_size, window_size, C)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, window_size, window_size, C)


def window_reverse(windows, window_size, H, W):
    B = int(windows.shape[0] / (H * W / window_size / window_size))
    x = windows.view(B, H // window_size, W // window_size, window_size, window_size, -1)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(B, H, W, -1)


class CosineWindowAttention(nn.Module):
    def __init__(self, dim, window_size, num_heads, qkv_bias=True):
        super().__init__()
        self.dim, self.window_size, self.num_heads = dim, window_size, num_heads
        self.logit_scale = nn.Parameter(torch.log(10 * torch.ones((num_heads, 1, 1))))
        self.cpb_mlp = nn.Sequential(nn.Linear(2, 64), nn.ReLU(inplace=True), nn.Linear(64, num_heads, bias=False))
        h = torch.arange(-(window_size[0] - 1), window_size[0], dtype=torch.float32)
        w = torch.arange(-(window_size[1] - 1), window_size[1], dtype=torch.float32)
        table = torch.stack(torch.meshgrid([h, w], indexing='ij')).permute(1, 2, 0).contiguous().unsqueeze(0)
        table[..., 0] /= max(window_size[0] - 1, 1)
        table[..., 1] /= max(window_size[1] - 1, 1)
        table = torch.sign(table * 8) * torch.log2(torch.abs(table * 8) + 1.0) / math.log2(8)
        self.register_buffer("relative_coords_table", table, persistent=False)
        coords = torch.stack(torch.meshgrid([torch.arange(window_size[0]), torch.arange(window_size[1])], indexing='ij')).flatten(1)
        rel = (coords[:, :, None] - coords[:, None, :]).permute(1, 2, 0).contiguous()
        rel[:, :, 0] += window_size[0] - 1
        rel[:, :, 1] += window_size[1] - 1
        rel[:, :, 0] *= 2 * window_size[1] - 1
        self.register_buffer("relative_position_index", rel.sum(-1), persistent=False)
        self.qkv = nn.Linear(dim, dim * 3, bias=False)
        self.q_bias = nn.Parameter(torch.zeros(dim)) if qkv_bias else None
        self.v_bias = nn.Parameter(torch.zeros(dim)) if qkv_bias else None
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, mask=None):
        B_, N, C = x.shape
        bias = None
        if self.q_bias is not None:
            bias = torch.cat((self.q_bias, torch.zeros_like(self.v_bias, requires_grad=False), self.v_bias))
        qkv = F.linear(x, self.qkv.weight, bias).reshape(B_, N, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        attn = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
        attn = attn * torch.clamp(self.logit_scale, max=math.log(1. / 0.01)).exp()
        table = self.cpb_mlp(self.relative_coords_table).view(-1, self.num_heads)
        rel = table[self.relative_position_index.view(-1)].view(N, N, -1).permute(2, 0, 1).contiguous()
        attn = attn + 16 * torch.sigmoid(rel).unsqueeze(0)
        if mask is not None:
            nW = mask.shape[0]
            attn = attn.view(B_ // nW, nW, self.num_heads, N, N) + mask.unsqueeze(1).unsqueeze(0)
            attn = attn.view(-1, self.num_heads, N, N)
        x = (attn.softmax(-1) @ v).transpose(1, 2).reshape(B_, N, C)
        return self.proj(x)


class ShiftedBlock(nn.Module):
    def __init__(self, dim, input_resolution=(8, 8), num_heads=2, window_size=4, shift_size=2):
        super().__init__()
        self.input_resolution, self.window_size, self.shift_size = input_resolution, window_size, shift_size
        self.norm = nn.LayerNorm(dim)
        self.attn = CosineWindowAttention(dim, (window_size, window_size), num_heads)
        H, W = input_resolution
        img = torch.zeros((1, H, W, 1))
        cnt = 0
        for hs in (slice(0, -window_size), slice(-window_size, -shift_size), slice(-shift_size, None)):
            for ws in (slice(0, -window_size), slice(-window_size, -shift_size), slice(-shift_size, None)):
                img[:, hs, ws, :] = cnt
                cnt += 1
        m = window_partition(img, window_size).view(-1, window_size * window_size)
        m = m.unsqueeze(1) - m.unsqueeze(2)
        self.register_buffer("attn_mask", m.masked_fill(m != 0, -100.0).masked_fill(m == 0, 0.0))

    def forward(self, x):
        H, W = self.input_resolution
        B, L, C = x.shape
        assert L == H * W, "input feature has wrong size"
        shortcut = x
        x = torch.roll(x.view(B, H, W, C), shifts=(-self.shift_size, -self.shift_size), dims=(1, 2))
        xw = window_partition(x, self.window_size).view(-1, self.window_size ** 2, C)
        xw = self.attn(xw, mask=self.attn_mask).view(-1, self.window_size, self.window_size, C)
        x = torch.roll(window_reverse(xw, self.window_size, H, W), shifts=(self.shift_size, self.shift_size), dims=(1, 2))
        return shortcut + self.norm(x.view(B, H * W, C))
