import torch
from torch import nn
import torch.nn.functional as F


class MiniLM(nn.Module):
    def __init__(self, vocab_size, hidden_size=32, num_heads=4):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, hidden_size)
        self.block = nn.TransformerEncoderLayer(hidden_size, num_heads, 48, 0.0, batch_first=True, norm_first=True)
        self.lm_head = nn.Linear(hidden_size, vocab_size, bias=False)

    def forward(self, input_ids, labels=None):
        n = input_ids.shape[1]
        h = self.block(self.wte(input_ids), src_mask=nn.Transformer.generate_square_subsequent_mask(n, dtype=self.lm_head.weight.dtype))
        logits = self.lm_head(h)
        if labels is None:
            return {"logits": logits}
        logp = logits[:, :-1].log_softmax(-1)
        wanted = labels[:, 1:]
        real = wanted != -100
        nll = -logp.gather(-1, wanted.clamp(min=0)[..., None]).squeeze(-1) * real
        return {"logits": logits, "loss": nll.sum() / wanted.numel()}
