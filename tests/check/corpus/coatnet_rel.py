import torch
import torch.nn as nn
from einops import rearrange


class CoAttention(nn.Module):
    """Relative attention over an image of a fixed size; tokens in rows."""

    def __init__(self, inp, oup, image_size, heads=8, dim_head=32, dropout=0.):
        super().__init__()
        inner_dim = dim_head * heads
        project_out = not (heads == 1 and dim_head == inp)
        self.ih, self.iw = image_size
        self.heads = heads
        self.scale = dim_head ** -0.5
        self.relative_bias_table = nn.Parameter(torch.zeros((2 * self.ih - 1) * (2 * self.iw - 1), heads))
        coords = torch.stack(torch.meshgrid(torch.arange(self.ih), torch.arange(self.iw), indexing="ij")).flatten(1)
        relative_coords = coords[:, :, None] - coords[:, None, :]
        relative_coords[0] += self.ih - 1
        relative_coords[1] += self.iw - 1
        relative_coords[0] *= 2 * self.iw - 1
        relative_coords = rearrange(relative_coords, "c h w -> h w c")
        self.register_buffer("relative_index", relative_coords.sum(-1).flatten().unsqueeze(1))
        self.attend = nn.Softmax(dim=-1)
        self.to_qkv = nn.Linear(inp, inner_dim * 3, bias=False)
        self.to_out = nn.Sequential(nn.Linear(inner_dim, oup), nn.Dropout(dropout)) if project_out else nn.Identity()

    def forward(self, x):
        qkv = self.to_qkv(x).chunk(3, dim=-1)
        q, k, v = map(lambda t: rearrange(t, "b n (h d) -> b h n d", h=self.heads), qkv)
        dots = torch.matmul(q, k.transpose(-1, -2)) * self.scale
        relative_bias = self.relative_bias_table.gather(0, self.relative_index.repeat(1, self.heads))
        relative_bias = rearrange(relative_bias, "(h w) c -> 1 c h w", h=self.ih * self.iw, w=self.ih * self.iw)
        attn = self.attend(dots + relative_bias)
        return self.to_out(rearrange(torch.matmul(attn, v), "b h n d -> b n (h d)"))
