import torch
import torch.nn as nn


class AtencionMultiCabeza(nn.Module):
    """máscara: (lote, 1, 1, longitud), 1 para las palabras"""

    def __init__(self, d_modelo, n_cabezas):
        super().__init__()
        self.n_cabezas = n_cabezas
        self.d_k = d_modelo // n_cabezas
        self.W_q = nn.Linear(d_modelo, d_modelo)
        self.W_k = nn.Linear(d_modelo, d_modelo)
        self.W_v = nn.Linear(d_modelo, d_modelo)
        self.W_o = nn.Linear(d_modelo, d_modelo)

    def dividir(self, x):
        lote, largo, _ = x.size()
        return x.view(lote, largo, self.n_cabezas, self.d_k).transpose(1, 2)

    def forward(self, x, mask=None):
        Q, K, V = self.dividir(self.W_q(x)), self.dividir(self.W_k(x)), self.dividir(self.W_v(x))
        puntajes = torch.matmul(Q, K.transpose(-2, -1)) / (self.d_k ** 0.5)
        mask = mask or torch.ones(1, 1, 1, x.size(1))
        puntajes = puntajes.masked_fill(mask == 0, float('-1e20'))
        pesos = puntajes.softmax(dim=-1)
        salida = torch.matmul(pesos, V).transpose(1, 2).contiguous().view(x.size(0), -1, self.n_cabezas * self.d_k)
        return self.W_o(salida)
