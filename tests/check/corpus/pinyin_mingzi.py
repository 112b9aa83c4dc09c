import torch
import torch.nn as nn


class ZiZhuYiLi(nn.Module):
    """自注意力 (zi zhu yi li)"""

    def __init__(self, weidu, tou_shu):
        super().__init__()
        self.tou_shu = tou_shu
        self.mei_tou = weidu // tou_shu
        self.chaxun = nn.Linear(weidu, weidu)
        self.jian = nn.Linear(weidu, weidu)
        self.zhi = nn.Linear(weidu, weidu)
        self.shuchu = nn.Linear(weidu, weidu)

    def forward(self, shuru, yanma=None):
        pi, chang, kuan = shuru.shape
        q = self.chaxun(shuru).view(pi, chang, self.tou_shu, self.mei_tou).transpose(1, 2)
        k = self.jian(shuru).view(pi, chang, self.tou_shu, self.mei_tou).transpose(1, 2)
        v = self.zhi(shuru).view(pi, chang, self.tou_shu, self.mei_tou).transpose(1, 2)
        fenshu = q @ k.transpose(-1, -2) / self.mei_tou ** 0.5
        if yanma is not None:
            fenshu = fenshu.masked_fill(yanma == 0, -1e9)
        quanzhong = torch.softmax(fenshu, dim=-1)
        jieguo = (quanzhong @ v).transpose(1, 2).reshape(pi, chang, kuan)
        return self.shuchu(jieguo)
