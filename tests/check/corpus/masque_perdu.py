# Réseau pour la classification de phrases
import torch
from torch import nn


class CoucheAttention(nn.Module):
    """masque : (lot, longueur), vrai pour les mots, faux pour le remplissage"""

    def __init__(self, dimension, nombre_tetes):
        super().__init__()
        self.tetes = nombre_tetes
        self.projection = nn.Linear(dimension, 3 * dimension)
        self.sortie = nn.Linear(dimension, dimension)

    def forward(self, phrases, masque=None):
        lot, longueur, dimension = phrases.shape
        q, k, v = self.projection(phrases).view(lot, longueur, 3, self.tetes, -1).permute(2, 0, 3, 1, 4)
        affinites = q @ k.transpose(-1, -2) / (dimension // self.tetes) ** 0.5
        if masque is not None:
            affinites.masked_fill(~masque[:, None, None, :], float('-inf'))
        return self.sortie((affinites.softmax(-1) @ v).transpose(1, 2).reshape(lot, longueur, dimension))
