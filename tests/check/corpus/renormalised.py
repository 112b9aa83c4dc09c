"""Matrix attention as in older NLP toolkits: the mask is applied to the weights, which are then divided by their sum."""
import torch
from torch import nn


def masked_softmax(vector, mask, dim=-1):
    if mask is None:
        return torch.nn.functional.softmax(vector, dim=dim)
    mask = mask.to(vector.dtype)
    while mask.dim() < vector.dim():
        mask = mask.unsqueeze(1)
    result = torch.nn.functional.softmax(vector, dim=dim) * mask
    return result / (result.sum(dim=dim, keepdim=True) + 1e-13)


class StackedSelfAttention(nn.Module):
    def __init__(self, input_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self._combined_projection = nn.Linear(input_dim, 3 * input_dim)
        self._output_projection = nn.Linear(input_dim, input_dim)
        self._scale = (input_dim // num_heads) ** 0.5

    def forward(self, inputs, mask=None):
        batch_size, timesteps, dim = inputs.size()
        queries, keys, values = self._combined_projection(inputs).split(dim, -1)
        per_head = lambda t: t.view(batch_size, timesteps, self.num_heads, -1).transpose(1, 2)
        similarities = per_head(queries / self._scale) @ per_head(keys).transpose(-1, -2)
        attention = masked_softmax(similarities, mask)
        outputs = (attention @ per_head(values)).transpose(1, 2).contiguous().view(batch_size, timesteps, dim)
        return self._output_projection(outputs)
