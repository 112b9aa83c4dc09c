from beartype import beartype
from jaxtyping import Float, jaxtyped
from loguru import logger
import torch
from torch import Tensor, nn

logger.info("shapes are checked at run time")


class ShapedAttention(nn.Module):
    def __init__(self, d_model: int, n_heads: int):
        super().__init__()
        self.n_heads = n_heads
        self.w_in = nn.Linear(d_model, 3 * d_model, bias=False)
        self.w_out = nn.Linear(d_model, d_model, bias=False)

    @jaxtyped(typechecker=beartype)
    def forward(self, x: Float[Tensor, "batch seq d_model"]) -> Float[Tensor, "batch seq d_model"]:
        b, s, d = x.shape
        q, k, v = self.w_in(x).view(b, s, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        w = torch.softmax(q @ k.mT / (d // self.n_heads) ** 0.5, dim=-1)
        return self.w_out((w @ v).transpose(1, 2).reshape(b, s, d))
