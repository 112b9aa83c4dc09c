"""A mixer of your own: a leaky mean of all tokens so far. The laws find out whether it is honest about its state.

`@heed.register` above the class would make its kind known to recipes, `heed list` and `heed verify`, too.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

import heed
from heed.core.contract import Mixer, MixerConfig, Reach
from heed.core.laws import LAWS, Case
from heed.core.spec import Dim, Entries, Slot, Spec, words
from heed.core.state import Cell


class Leaky(Mixer[Cell]):
    """y_i = W m_i,   m_i = a ⊙ m_{i-1} + (1 - a) ⊙ x_i,   with a learnt a between 0 and 1 for each channel."""

    class Config(MixerConfig):
        paper: ClassVar[str] = "an exponential moving average, as in Ma et al. 2022, Mega"
        kind: Literal["leaky"] = "leaky"

        def build(self, width: int) -> Leaky:
            return Leaky(width)

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width, self.reach = Dim("width", width), Reach(back=None, ahead=0)
        self.keep, self.out = nn.Parameter(torch.linspace(-2, 4, width)), nn.Linear(width, width)

    def spec(self) -> Spec:
        return Slot(((self.width,),), Entries(fixed=1), self.out.weight.dtype)

    def forward(self, x: Tensor, where: heed.Where, state: Cell | None = None) -> tuple[Tensor, Cell | None]:
        keep = self.keep.sigmoid()
        (mean,) = (self.start(len(x)) if state is None else state).take()
        means = []
        for token, real in zip(where.blank(x).unbind(1), where.real.unbind(1), strict=True):
            mean = torch.where(real[:, None], keep * mean + (1 - keep) * token, mean)  # padding changes nothing
            means.append(mean)
        return self.out(torch.stack(means, 1)), None if state is None else Cell(mean)


mixer = Leaky.Config().build(24)
print("remembers", words(mixer.spec()))
for law in LAWS:
    finding = law(mixer, Case.make(width=24))
    print(f"{finding.law:8s} {'holds' if finding.holds else 'FAILS'}   {finding.detail}")

state: Cell | None = mixer.start(rows=2)  # and so it decodes, like any mixer: a state in, a state out
for token in range(3):
    y, state = mixer(torch.randn(2, 1, 24), heed.Where.run(2, 1, start=token), state)
    print(f"after token {token} the state has", heed.nbytes(state or ()), "bytes")
