import torch
import torch.nn as nn


class AttentionSequencePoolingLayer(nn.Module):
    """query [B, 1, E], keys [B, T, E], keys_length [B, 1] -> [B, 1, E]"""

    def __init__(self, embedding_dim=4, att_hidden_units=(80, 40), weight_normalization=True):
        super().__init__()
        sizes = [4 * embedding_dim, *att_hidden_units]
        self.dnn = nn.Sequential(*[m for i, o in zip(sizes[:-1], sizes[1:]) for m in (nn.Linear(i, o), nn.Sigmoid())])
        self.dense = nn.Linear(sizes[-1], 1)
        self.weight_normalization = weight_normalization

    def forward(self, query, keys, keys_length):
        batch_size, max_length, _ = keys.size()
        queries = query.expand(-1, max_length, -1)
        attn_in = torch.cat([queries, keys, queries - keys, queries * keys], dim=-1)
        score = self.dense(self.dnn(attn_in)).transpose(1, 2)
        keys_masks = (torch.arange(max_length)[None, :] < keys_length.view(-1, 1)).unsqueeze(1)
        if self.weight_normalization:
            score = torch.where(keys_masks, score, torch.ones_like(score) * (-2 ** 32 + 1))
            score = torch.softmax(score, dim=-1)
        else:
            score = torch.where(keys_masks, score, torch.zeros_like(score))
        return torch.matmul(score, keys)
