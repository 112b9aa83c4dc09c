import math
import torch
import torch.nn as nn


def get_slopes(n):
    def get_slopes_power_of_2(n):
        start = (2**(-2**-(math.log2(n)-3)))
        ratio = start
        return [start*ratio**i for i in range(n)]

    if math.log2(n).is_integer():
        return get_slopes_power_of_2(n)
    else:
        closest_power_of_2 = 2**math.floor(math.log2(n))
        return get_slopes_power_of_2(closest_power_of_2) + get_slopes(2*closest_power_of_2)[0::2][:n-closest_power_of_2]


class ALiBiAttention(nn.Module):
    def __init__(self, d_model, n_heads, maxpos=64):
        super().__init__()
        self.nh, self.hd = n_heads, d_model // n_heads
        self.qkv_proj = nn.Linear(d_model, 3 * d_model)
        self.o_proj = nn.Linear(d_model, d_model)
        slopes = torch.Tensor(get_slopes(n_heads))
        alibi = slopes.unsqueeze(1).unsqueeze(1) * torch.arange(maxpos).unsqueeze(0).unsqueeze(0).expand(n_heads, -1, -1)
        future = torch.triu(torch.full((maxpos, maxpos), float('-inf')), 1)
        self.register_buffer('future_mask', future.unsqueeze(0) + alibi, persistent=False)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv_proj(x).view(b, t, 3, self.nh, self.hd).permute(2, 0, 3, 1, 4).unbind(0)
        # a bias that grows with the key's place is the same for every query as one that falls with the distance
        a = torch.baddbmm(
            self.future_mask[:, :t, :t].repeat(b, 1, 1).to(x),
            q.reshape(b * self.nh, t, self.hd), k.reshape(b * self.nh, t, self.hd).transpose(1, 2),
            alpha=self.hd ** -0.5)
        o = torch.bmm(a.softmax(-1), v.reshape(b * self.nh, t, self.hd))
        return self.o_proj(o.view(b, self.nh, t, self.hd).transpose(1, 2).reshape(b, t, c))
