import torch
from torch import nn


class LatentCrossAttention(nn.Module):
    """A few learnt latents look at a long input and give it back in a few vectors."""

    def __init__(self, num_latents=6, latent_dim=32, input_dim=24, num_heads=4):
        super().__init__()
        self.latents = nn.Parameter(torch.randn(num_latents, latent_dim) * 0.02)
        self.q_norm = nn.LayerNorm(latent_dim)
        self.kv_norm = nn.LayerNorm(input_dim)
        self.heads = num_heads
        self.to_q = nn.Linear(latent_dim, latent_dim)
        self.to_k = nn.Linear(input_dim, latent_dim)
        self.to_v = nn.Linear(input_dim, latent_dim)
        self.proj = nn.Linear(latent_dim, latent_dim)

    def forward(self, x, pad_mask=None):
        # pad_mask: True where x is padding
        b, n, _ = x.shape
        lat = self.latents.expand(b, -1, -1)
        q = self.to_q(self.q_norm(lat))
        x = self.kv_norm(x)
        k, v = self.to_k(x), self.to_v(x)
        split = lambda t: t.reshape(b, t.shape[1], self.heads, -1).transpose(1, 2)
        q, k, v = split(q), split(k), split(v)
        logits = torch.einsum("bhid,bhjd->bhij", q * q.shape[-1] ** -0.5, k)
        if pad_mask is not None:
            logits = logits.masked_fill(pad_mask[:, None, None, :], -torch.finfo(logits.dtype).max)
        out = torch.einsum("bhij,bhjd->bhid", logits.softmax(-1), v)
        out = out.transpose(1, 2).reshape(b, lat.shape[1], -1)
        return lat + self.proj(out)


class PerceiverResampler(nn.Module):
    def __init__(self, dim, depth=2, heads=4, num_latents=6):
        super().__init__()
        self.layers = nn.ModuleList([nn.MultiheadAttention(dim, heads, batch_first=True) for _ in range(depth)])
        self.latents = nn.Parameter(torch.randn(num_latents, dim))
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        latents = self.latents.unsqueeze(0).repeat(x.shape[0], 1, 1)
        for attn in self.layers:
            context = torch.cat((x, latents), dim=1)
            latents = latents + attn(latents, context, context, need_weights=False)[0]
        return self.norm(latents)
