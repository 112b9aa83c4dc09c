"""Graph attention over a list of edges, as libraries of graphs do it, without them."""
import torch
from torch import nn
import torch.nn.functional as F


def scatter_softmax(scores, index, n):
    peak = torch.full((n, scores.size(1)), float("-inf"), dtype=scores.dtype).scatter_reduce(
        0, index[:, None].expand_as(scores), scores, "amax")
    exp = (scores - peak[index]).exp()
    total = torch.zeros(n, scores.size(1), dtype=scores.dtype).index_add(0, index, exp)
    return exp / total[index]


class GATConv(nn.Module):
    def __init__(self, in_channels, out_channels, heads=4, concat=False, negative_slope=0.2):
        super().__init__()
        self.heads, self.out_channels, self.concat, self.slope = heads, out_channels, concat, negative_slope
        self.lin = nn.Linear(in_channels, heads * out_channels, bias=False)
        self.att_src = nn.Parameter(torch.randn(1, heads, out_channels))
        self.att_dst = nn.Parameter(torch.randn(1, heads, out_channels))
        self.bias = nn.Parameter(torch.zeros(heads * out_channels if concat else out_channels))

    def forward(self, x, edge_index):
        # x [N, C], edge_index [2, E]: from edge_index[0] to edge_index[1]
        n = x.size(0)
        h = self.lin(x).view(n, self.heads, self.out_channels)
        src, dst = edge_index
        alpha = ((h * self.att_src).sum(-1)[src] + (h * self.att_dst).sum(-1)[dst])
        alpha = scatter_softmax(F.leaky_relu(alpha, self.slope), dst, n)
        out = torch.zeros_like(h).index_add(0, dst, h[src] * alpha.unsqueeze(-1))
        out = out.view(n, -1) if self.concat else out.mean(dim=1)
        return out + self.bias
