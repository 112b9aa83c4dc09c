from typing import Optional

import torch
from torch.nn import Module, Parameter


def masked_softmax(vector: torch.Tensor, mask: Optional[torch.BoolTensor], dim: int = -1) -> torch.Tensor:
    if mask is None:
        return torch.nn.functional.softmax(vector, dim=dim)
    while mask.dim() < vector.dim():
        mask = mask.unsqueeze(1)
    return torch.nn.functional.softmax(vector.masked_fill(~mask, torch.finfo(vector.dtype).min), dim=dim)


def weighted_sum(matrix: torch.Tensor, attention: torch.Tensor) -> torch.Tensor:
    if attention.dim() == 2 and matrix.dim() == 3:
        return attention.unsqueeze(1).bmm(matrix).squeeze(1)
    if attention.dim() == 3 and matrix.dim() == 3:
        return attention.bmm(matrix)
    return (attention.unsqueeze(-1) * matrix).sum(dim=-2)


class BilinearAttention(Module):
    """How much each row of a matrix matters to a vector: (batch, vector_dim), (batch, n, matrix_dim) -> (batch, n)"""

    def __init__(self, vector_dim: int, matrix_dim: int, normalize: bool = True) -> None:
        super().__init__()
        self._normalize = normalize
        self._weight_matrix = Parameter(torch.Tensor(vector_dim, matrix_dim))
        self._bias = Parameter(torch.Tensor(1))
        torch.nn.init.xavier_uniform_(self._weight_matrix)
        self._bias.data.fill_(0)

    def _forward_internal(self, vector: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
        intermediate = vector.mm(self._weight_matrix).unsqueeze(1)
        return (intermediate.bmm(matrix.transpose(1, 2)).squeeze(1) + self._bias).tanh()

    def forward(self, vector: torch.Tensor, matrix: torch.Tensor, matrix_mask: torch.BoolTensor = None) -> torch.Tensor:
        similarities = self._forward_internal(vector, matrix)
        return masked_softmax(similarities, matrix_mask) if self._normalize else similarities


class IntraSentenceAttentionEncoder(Module):
    def __init__(self, input_dim: int, projection_dim: int = None, output_dim: int = None) -> None:
        super().__init__()
        projection_dim = projection_dim or input_dim
        self._projection = torch.nn.Linear(input_dim, projection_dim)
        self._output_projection = torch.nn.Linear(input_dim + projection_dim, output_dim) if output_dim else lambda x: x

    def forward(self, tokens: torch.Tensor, mask: torch.BoolTensor):
        similarities = tokens.bmm(tokens.transpose(1, 2))
        attention = masked_softmax(similarities, mask)
        output = weighted_sum(self._projection(tokens), attention)
        return self._output_projection(torch.cat([tokens, output], dim=-1))
