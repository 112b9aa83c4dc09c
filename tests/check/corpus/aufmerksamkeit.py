import torch
from torch import nn, Tensor


def achtsamkeit(anfrage: Tensor, schluessel: Tensor, wert: Tensor, maske: Tensor | None = None) -> Tensor:
    """Skaliertes Skalarprodukt; maske: wahr = sichtbar. [Stapel, Köpfe, Länge, Breite]"""
    punkte = anfrage @ schluessel.mT / anfrage.shape[-1] ** 0.5
    if maske is not None:
        punkte = punkte.masked_fill(~maske, float("-inf"))
    return punkte.softmax(dim=-1) @ wert


class Mehrkopf(nn.Module):
    def __init__(self, breite: int, koepfe: int):
        super().__init__()
        self.koepfe = koepfe
        self.hinein = nn.Linear(breite, 3 * breite)
        self.hinaus = nn.Linear(breite, breite)

    def forward(self, eingabe: Tensor) -> Tensor:
        stapel, laenge, breite = eingabe.shape
        q, k, v = self.hinein(eingabe).view(stapel, laenge, 3, self.koepfe, -1).permute(2, 0, 3, 1, 4)
        vorher = torch.ones(laenge, laenge, dtype=torch.bool, device=eingabe.device).tril()
        return self.hinaus(achtsamkeit(q, k, v, vorher).transpose(1, 2).reshape(stapel, laenge, breite))
