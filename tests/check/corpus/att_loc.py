import torch
import torch.nn as nn
import torch.nn.functional as F


class AttDot(nn.Module):
    """Encoder states come first: enc_hs_pad (B, T_max, eprojs), enc_hs_len (list of B), dec_z (B, dunits), att_prev"""

    def __init__(self, eprojs, dunits, att_dim):
        super(AttDot, self).__init__()
        self.mlp_enc = nn.Linear(eprojs, att_dim)
        self.mlp_dec = nn.Linear(dunits, att_dim)
        self.dunits, self.eprojs, self.att_dim = dunits, eprojs, att_dim

    def forward(self, enc_hs_pad, enc_hs_len, dec_z, att_prev, scaling=2.0):
        batch = enc_hs_pad.size(0)
        pre_compute_enc_h = torch.tanh(self.mlp_enc(enc_hs_pad))
        e = torch.sum(pre_compute_enc_h * torch.tanh(self.mlp_dec(dec_z)).view(batch, 1, self.att_dim), dim=2)
        mask = torch.tensor([[t >= n for t in range(e.size(1))] for n in enc_hs_len])
        e = e.masked_fill(mask, -float("inf"))
        w = F.softmax(scaling * e, dim=1)
        c = torch.sum(enc_hs_pad * w.view(batch, -1, 1), dim=1)
        return c, w
