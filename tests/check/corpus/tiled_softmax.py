import torch


def flash_attention(q, k, v, block=2):
    """Blockwise attention with a running maximum and sum; q, k, v: (B, H, N, d)."""
    scale = q.shape[-1] ** -0.5
    out = torch.zeros_like(q)
    for start in range(0, q.shape[2], block):
        qi = q[:, :, start:start + block] * scale
        m = torch.full(qi.shape[:-1] + (1,), float("-inf"), dtype=q.dtype, device=q.device)
        l = torch.zeros_like(m)
        acc = torch.zeros_like(qi)
        for at in range(0, k.shape[2], block):
            kj, vj = k[:, :, at:at + block], v[:, :, at:at + block]
            s = qi @ kj.transpose(-1, -2)
            new = torch.maximum(m, s.amax(-1, keepdim=True))
            p = (s - new).exp()
            fix = (m - new).exp()
            l = fix * l + p.sum(-1, keepdim=True)
            acc = fix * acc + p @ vj
            m = new
        out[:, :, start:start + block] = acc / l
    return out


def local_attention_1d(q, k, v, window_size=3):
    """Only keys at most window_size away, on both sides; (B, H, N, d)."""
    n = q.shape[-2]
    pos = torch.arange(n, device=q.device)
    near = (pos[:, None] - pos[None, :]).abs() <= window_size
    sim = torch.einsum("bhid,bhjd->bhij", q, k) * q.shape[-1] ** -0.5
    return torch.einsum("bhij,bhjd->bhid", sim.masked_fill(~near, float("-inf")).softmax(-1), v)
