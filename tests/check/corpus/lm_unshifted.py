import torch
from torch import nn
import torch.nn.functional as F


class CharLM(nn.Module):
    """labels are the input ids themselves"""

    def __init__(self, vocab_size, d_model=32, nhead=4, num_layers=1, max_len=64):
        super().__init__()
        self.embed, self.pos = nn.Embedding(vocab_size, d_model), nn.Embedding(max_len, d_model)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(d_model, nhead, 64, 0.0, batch_first=True) for _ in range(num_layers))
        self.head = nn.Linear(d_model, vocab_size)

    def forward(self, input_ids, labels=None):
        t = input_ids.shape[1]
        x = self.embed(input_ids) + self.pos(torch.arange(t))
        mask = torch.ones(t, t).triu(1).bool()
        for layer in self.layers:
            x = layer(x, src_mask=mask)
        logits = self.head(x)
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits.reshape(-1, logits.size(-1)), labels.reshape(-1))
        return loss, logits
