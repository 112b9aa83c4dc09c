import torch
from torch import nn


class LocalActivationUnit(nn.Module):
    """How much each behaviour of a user matters to the candidate item (no softmax, as in the paper)."""

    def __init__(self, embedding_dim, hidden=(16, 8)):
        super().__init__()
        layers, last = [], 4 * embedding_dim
        for h in hidden:
            layers += [nn.Linear(last, h), nn.PReLU()]
            last = h
        self.mlp = nn.Sequential(*layers, nn.Linear(last, 1))

    def forward(self, query, user_behavior, mask=None):
        # query [B, 1, D], user_behavior [B, T, D], mask [B, T]
        q = query.expand(-1, user_behavior.size(1), -1)
        scores = self.mlp(torch.cat([q, user_behavior, q - user_behavior, q * user_behavior], dim=-1)).squeeze(-1)
        if mask is not None:
            scores = scores * mask
        return torch.bmm(scores.unsqueeze(1), user_behavior)


class BehaviourAttention(nn.Module):
    """The same with a softmax over what really happened."""

    def __init__(self, embedding_dim):
        super().__init__()
        self.W = nn.Linear(embedding_dim, embedding_dim, bias=False)

    def forward(self, target_item, history, history_mask=None):
        # target_item [B, D], history [B, T, D], history_mask [B, T] True = happened
        scores = torch.einsum("bd,btd->bt", self.W(target_item), history)
        if history_mask is not None:
            scores = scores.masked_fill(~history_mask.bool(), -1e9)
        return torch.einsum("bt,btd->bd", scores.softmax(dim=-1), history)
