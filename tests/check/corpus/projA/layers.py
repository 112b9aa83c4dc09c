import torch.nn as nn


class Proj(nn.Linear):
    """no bias here"""

    def __init__(self, n_in, n_out):
        super().__init__(n_in, n_out, bias=False)
