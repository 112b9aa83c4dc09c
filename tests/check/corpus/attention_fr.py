# -*- coding: utf-8 -*-
"""Attention à plusieurs têtes, pour le TP de mercredi."""
from math import sqrt

import torch
from torch import nn


class AttentionMultiTetes(nn.Module):
    """
    dim_modele : la dimension des vecteurs
    nb_tetes : le nombre de têtes
    """

    def __init__(self, dim_modele, nb_tetes, taux_dropout=0.1):
        super().__init__()
        assert dim_modele % nb_tetes == 0, "la dimension doit être divisible par le nombre de têtes"
        self.nb_tetes = nb_tetes
        self.dim_tete = dim_modele // nb_tetes
        self.requetes = nn.Linear(dim_modele, dim_modele)
        self.cles = nn.Linear(dim_modele, dim_modele)
        self.valeurs = nn.Linear(dim_modele, dim_modele)
        self.sortie = nn.Linear(dim_modele, dim_modele)
        self.dropout = nn.Dropout(taux_dropout)

    def decouper(self, x):
        lot, longueur, _ = x.shape
        return x.view(lot, longueur, self.nb_tetes, self.dim_tete).permute(0, 2, 1, 3)

    def forward(self, entree, masque=None):
        # masque : 1 = le mot est visible, 0 = il est caché   (lot, longueur)
        q, k, v = self.decouper(self.requetes(entree)), self.decouper(self.cles(entree)), self.decouper(self.valeurs(entree))
        scores = torch.einsum('bhid,bhjd->bhij', q, k) / sqrt(self.dim_tete)
        if masque is not None:
            scores = scores.masked_fill(masque[:, None, None, :] == 0, float('-inf'))
        poids = self.dropout(torch.softmax(scores, dim=-1))
        melange = torch.einsum('bhij,bhjd->bihd', poids, v)
        return self.sortie(melange.flatten(2))
