from typing import List, Optional, Tuple
import torch
from torch import nn


class RotaryCached(nn.Module):
    def __init__(self, hidden_size: int, num_heads: int):
        super().__init__()
        self.h, self.d = num_heads, hidden_size // num_heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(hidden_size, hidden_size, bias=False) for _ in range(4))

    def rotate(self, x):
        half = self.d // 2
        pos = torch.arange(x.shape[2], dtype=torch.float64, device=x.device)
        angle = pos[:, None] * 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
        cos, sin = angle.cos().to(x), angle.sin().to(x)
        a, b = x[..., :half], x[..., half:]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def forward(self, hidden_states, past_key_value: Optional[Tuple[torch.Tensor, torch.Tensor]] = None):
        b, t, _ = hidden_states.shape
        split = lambda m: m(hidden_states).view(b, t, self.h, self.d).transpose(1, 2)
        q, k, v = self.rotate(split(self.q_proj)), self.rotate(split(self.k_proj)), split(self.v_proj)
        if past_key_value is not None:
            k = torch.cat([past_key_value[0], k], dim=2)
            v = torch.cat([past_key_value[1], v], dim=2)
        s = k.shape[2]
        hidden = torch.ones(t, s, dtype=torch.bool, device=k.device).triu(s - t + 1)
        w = (q @ k.transpose(2, 3) / self.d ** 0.5).masked_fill(hidden, float("-inf")).softmax(-1)
        return self.o_proj((w @ v).transpose(1, 2).reshape(b, t, -1)), (k, v)
