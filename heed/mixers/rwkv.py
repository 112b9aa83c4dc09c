"""Time mixing of RWKV-4 (Peng et al. 2023): a weighted mean of all values so far, with a decay per channel."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from ..core.config import Size
from ..core.contract import Mixer, MixerConfig, Reach, Where
from ..core.spec import Dim, Entries, Slot, Spec
from ..core.state import Cell
from ..kernels import served, wkv
from ..parts.recurrence.decay import must_rise
from ..parts.recurrence.scan import Memory, after, before, crests, pieces, scan
from ..parts.recurrence.token_shift import RwkvConfig, continued

NEVER = -1e38  # the level of sums to which nothing was added: finite, so that differences of two are numbers

Remembered: TypeAlias = "tuple[Cell, Cell, Cell]"  # the last token, both sums, and their level


class Sums(NamedTuple):
    """The state: exp(level) · above = Σ e^(k_j + ...) v_j, and the same `below` without v."""

    above: Tensor  # [B, D]
    below: Tensor
    level: Tensor  # the largest exponent: so no sum overflows, and the one below is 1 at least


class Rwkv(Mixer[Remembered]):
    """Time mixing of RWKV-4: per channel a mean of all values so far, with weights that are exponentials of keys and
    decay with the distance, times a gate.

        wkv_i = (Σ_{j<i} e^(-(i-1-j) e^w + k_j) v_j + e^(u + k_i) v_i) / (Σ_{j<i} e^(-(i-1-j) e^w + k_j) + e^(u + k_i))
        y_i = W_o (σ(r_i) ⊙ wkv_i),   r_i, k_i, v_i = W (μ ⊙ x_i + (1 - μ) ⊙ x_{i-1}) with a μ for each of them

    Peng et al. 2023. Costs O(n·d) time beside its projections and O(n·d) memory over n tokens, a step of decoding O(d).
    Remembers the last token, both sums and the largest exponent in them, by which they are divided. The whole sequence
    is one walk of a kernel (`kernels/wkv_scan.py`) or a scan of pairs (`parts/recurrence/scan.py`), in which no
    exponent is above 0: neither 20,000 tokens nor keys of any size overflow. First weights are the authors' for layer
    `layer` of `layers`: deeper layers fade faster, and take more from the token itself.
    """

    class Config(RwkvConfig):
        kind: Literal["rwkv"] = "rwkv"
        hidden: Size | None = None  # channels of keys and values; None: the width

        def build(self, width: int) -> Rwkv:
            return Rwkv(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            return cls(), cls(hidden=10), cls(layer=1, layers=2), cls(hidden=1, layer=2, layers=5)

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        self.width, self.hidden = Dim("width", width), Dim("hidden", config.hidden or width)
        self.reach = Reach(None, 0)
        self.key, self.value, self.receptance = (nn.Linear(width, self.hidden, bias=False) for _ in range(3))
        self.out = nn.Linear(self.hidden, width, bias=False)
        deep, left = config.layer / max(1, config.layers - 1), 1 - config.layer / config.layers
        share = torch.arange(width) / width
        self.mix_key = nn.Parameter(share**left)  # μ
        self.mix_value = nn.Parameter(share**left + 0.3 * deep)
        self.mix_receptance = nn.Parameter(share ** (left / 2))
        channel = torch.arange(self.hidden)
        self.decay = nn.Parameter(-5 + 8 * (channel / max(1, self.hidden - 1)) ** (0.7 + 1.3 * deep))  # w
        self.bonus = nn.Parameter(torch.tensor(0.3).log() + ((channel + 1) % 3 - 1) * 0.5)  # u

    @property
    def precision(self) -> torch.dtype:
        """Long sums need at least float32."""
        return torch.promote_types(self.out.weight.dtype, torch.float32)

    def spec(self) -> Spec:
        one = Entries(fixed=1)
        level = Slot(((self.hidden,),), one, self.precision, fill=NEVER)
        return (
            Slot(((self.width,),), one, self.out.weight.dtype),
            Slot(((self.hidden,),) * 2, one, self.precision),
            level,
        )

    def forward(self, x: Tensor, where: Where, state: Remembered | None = None) -> tuple[Tensor, Remembered | None]:
        must_rise(where, "RWKV")
        x = where.blank(x)
        last, sums, level = (cell.take() for cell in (self.start(len(x)) if state is None else state))
        both, tail = continued(x, where, last[0].unsqueeze(1))
        earlier = both[:, :-1]
        key = self.key(torch.lerp(earlier, x, self.mix_key)).to(self.precision)
        value = self.value(torch.lerp(earlier, x, self.mix_value)).to(self.precision)
        gate = torch.sigmoid(self.receptance(torch.lerp(earlier, x, self.mix_receptance)))
        mean, kept = self._means(key, value, (*sums, *level), where)
        y: Tensor = self.out(gate * mean.to(x.dtype))
        return y, None if state is None else (Cell(tail[:, 0]), Cell(*kept[:2]), Cell(kept[2]))

    def _means(self, key: Tensor, value: Tensor, known: Memory, where: Where) -> tuple[Tensor, Memory]:
        """wkv of all tokens, and the last sums: by the kernel, or all tokens of a piece at once."""
        if not served(key, value, *known):
            return pieces(self._mean, known, (key, value), where, 2 * len(key) * self.hidden)
        count = where.real.sum(1) if where.span.padded else None
        fade, bonus = -torch.exp(self.decay.to(key.dtype)), self.bonus.to(key.dtype)
        mean, last = wkv(key, value, fade, bonus, torch.stack(known), count)
        above, below, level = last
        return mean, (above, below, level.detach())

    def _mean(self, known: tuple[Tensor, ...], count: Tensor | None, key: Tensor, value: Tensor) -> tuple[Tensor, Sums]:
        """wkv of some tokens, and the sums after them. [B, T, D]"""
        sums = Sums(*known)
        fade = -torch.exp(self.decay.to(key.dtype))
        with torch.no_grad():
            level = crests(key, fade, sums.level)
            found = before(level, sums.level)
            crest = torch.maximum(found, self.bonus + key)
        decay = torch.exp(found + fade - level)
        weight = torch.exp(key - level)
        totals = torch.stack((sums.above, sums.below), 1)  # [B, 2, D]
        states = scan(decay.unsqueeze(2), torch.stack((weight * value, weight), 2), totals)
        above, below = before(states, totals).unbind(2)
        old, new = torch.exp(found - crest), torch.exp(self.bonus + key - crest)
        mean = (old * above + new * value) / (old * below + new)
        above, below = after(states, totals, count).unbind(1)
        return mean, Sums(above, below, after(level, sums.level, count))
