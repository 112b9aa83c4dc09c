from typing import Optional

import torch
import torch.nn as nn


class SentenceEncoderLayer(nn.Module):
    """
    Args:
        hidden_states: token vectors
        attention_mask: 1 for tokens, 0 for padding, as the tokenizer returns it
    """

    def __init__(self, hidden_size: int, num_attention_heads: int, intermediate_size: int = 64):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(
            hidden_size, num_attention_heads, intermediate_size, dropout=0.0, activation="gelu", batch_first=True
        )

    def forward(self, hidden_states: torch.Tensor, attention_mask: Optional[torch.Tensor] = None) -> torch.Tensor:
        if attention_mask is not None:
            attention_mask = attention_mask.bool()
        return self.layer(hidden_states, src_key_padding_mask=attention_mask)
