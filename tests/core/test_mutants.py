"""The mutation gate: planted faults, each caught by the law that should catch it; correct variants stay silent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from heed.core.cases import distance
from heed.core.contract import Mixer, Reach, Where
from heed.core.laws import LAWS, Case, Finding, Law, cost, padding, reach, rows, split
from heed.core.spec import Entries, Slot, Spec
from heed.core.state import Cell, Log, Seen, remember
from heed.mixers import Attention, Cross
from heed.parts.attention.attend import attend
from heed.parts.masks import Causal, Mask, Whole, Window
from heed.parts.positions import Rope

WIDTH = 24
CASE = Case.make(WIDTH)


def attention(**fields: Any) -> Attention:
    return Attention(Attention.Config(**fields), WIDTH)


class Retention(Mixer[Cell]):
    """A correct recurrence in few lines: S_i = S_(i-1)/2 + k_i v_i^T, y_i = q_i S_i."""

    def __init__(self, *, pads_enter: bool = False) -> None:
        super().__init__()
        self.reach, self.pads_enter = Reach(), pads_enter
        self.query, self.key, self.value = (nn.Linear(WIDTH, 5) for _ in range(3))
        self.out = nn.Linear(5, WIDTH)

    def spec(self) -> Spec:
        return Slot(((5, 5),), Entries(fixed=1), self.out.weight.dtype)

    def forward(self, x: Tensor, where: Where, state: Cell | None = None) -> tuple[Tensor, Cell | None]:
        x = x if self.pads_enter else where.blank(x)
        (past,) = (x.new_zeros(len(x), 5, 5),) if state is None else state.take()
        outputs = []
        for t in range(x.shape[1]):
            now = past / 2 + torch.einsum("bk,bv->bkv", self.key(x[:, t]), self.value(x[:, t]))
            real = where.real[:, t, None, None] | self.pads_enter
            past = torch.where(real, now, past)
            outputs.append(torch.einsum("bk,bkv->bv", self.query(x[:, t]), past))
        return self.out(torch.stack(outputs, 1)), None if state is None else Cell(past)


class KeptTooShort(Attention):
    """Keeps two entries for a window that looks three back."""

    def spec(self) -> Spec:
        slot = super().spec()
        assert isinstance(slot, Slot)
        return replace(slot, entries=replace(slot.entries, cap=2))


class CostUnderstated(Attention):
    def spec(self) -> Spec:
        slot = super().spec()
        assert isinstance(slot, Slot)
        return replace(slot, parts=slot.parts[:1])

    def start(self, rows: int, given: Any = None) -> Log:
        return Log.empty(super().spec(), rows)  # type: ignore[arg-type]


class WindowNeverForgets(Attention):
    def start(self, rows: int, given: Any = None) -> Log:
        slot = self.spec()
        assert isinstance(slot, Slot)
        return Log.empty(replace(slot, entries=Entries(each=1)), rows)


class CountsFromTheCall(Attention):
    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        local = Where.run(*x.shape[:2]).position
        return super().forward(x, replace(where, position=local), state)


class PeeksAhead(Mask):
    kind: str = "peeks"

    @property
    def reach(self) -> Reach:
        return Reach(None, 0)

    def allows(self, query: Tensor, key: Tensor) -> Tensor:
        return key <= query + 1


class MasksByIndex(Attention):
    """Every other token of a window, by index: right as long as the memory lies in order, wrong in a wrapped ring."""

    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        key, value = self.keys(x), self.values(x)
        seen, state = remember(state, where, key, value)
        count = seen.shape[1]
        index = torch.arange(count)
        last = index[count - x.shape[1] :]
        gap = last[:, None] - index
        visible = (gap >= 0) & (gap <= 4) & (gap % 2 == 0)
        key, value = seen.parts
        return self.merge(attend(self.queries(x), key, value, visible[None, None], scale=self.scale)), state


class MixesRows(Attention):
    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        return super().forward(x + 0.1 * x.mean(0, keepdim=True), where, state)


class ReachUnderstated(Attention):
    def __init__(self, config: Attention.Config, width: int) -> None:
        super().__init__(config, width)
        self.reach = Reach(2, 0)


class DropsInEval(Attention):
    @property
    def drop(self) -> float:
        return 0.5


class GivesBackTheConsumed(Attention):
    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        y, _ = super().forward(x, where, state)
        return y, state


class RemembersOnTheSide(Attention):
    last: Tensor | None = None

    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        y, state = super().forward(x, where, state)
        y = y if self.last is None else y + self.last
        self.last = y[:1, :1].detach()
        return y, state


class LosesGradients(Attention):
    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        y, state = super().forward(x, where, state)
        return y, None if state is None else state.rebuild([t.detach() for t in state.tensors()])


class LetsPaddingSpeak(Attention):
    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        loud = Where(where.order.clamp(min=0), where.position, where.given)
        return super().forward(x, loud, state)


class ClaimsToStream(Attention):
    def __init__(self, config: Attention.Config, width: int) -> None:
        super().__init__(config, width)
        self.reach = Reach(None, 0)


class TakesAnyState(Attention):
    def must_stream(self) -> None: ...


class ScalesByTheCall(Attention):
    """An activation scale per tensor instead of per token, as a careless int8 layer has it."""

    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        return super().forward(x / where.blank(x).abs().max(), where, state)


class ForgetsWhenSilent(Mixer[Cell]):
    """A token shift in which a row that gets no token in some call loses what it remembered."""

    def __init__(self) -> None:
        super().__init__()
        self.reach, self.out = Reach(1, 0), nn.Linear(WIDTH, WIDTH)

    def spec(self) -> Spec:
        return Slot(((WIDTH,),), Entries(fixed=1), self.out.weight.dtype)

    def forward(self, x: Tensor, where: Where, state: Cell | None = None) -> tuple[Tensor, Cell | None]:
        x = where.blank(x)
        (before,) = (x.new_zeros(len(x), WIDTH),) if state is None else state.take()
        shifted = torch.cat((before[:, None], x[:, :-1]), 1)
        last = x[torch.arange(len(x)), (where.real.sum(1) - 1).clamp(min=0)]
        return self.out(x + shifted), None if state is None else Cell(last)


class StarvesTheEncoder(Cross):
    def start(self, rows: int, given: Any = None) -> Log:
        log = super().start(rows, given)
        return log.rebuild([tensor.detach() for tensor in log.tensors()])


class CountsInTheCache(Attention):
    """Takes the number of tokens in its cache for the position: right only while position and order are the same."""

    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        counted = where if state is None else Where(where.order, where.order.clamp(min=0), where.given)
        return super().forward(x, counted, state)


class HearsSourcePadding(Cross):
    def _source(self, given: Any) -> Seen:
        memory = given.encoder_output
        return Seen(
            memory.order.clamp(min=0), memory.position, self.keys(memory.parts[0]), self.values(memory.parts[0])
        )


class TimesZero(Attention):
    """Padding is multiplied by zero: only what is no number gets through."""

    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        query, key, value = self.project(x * where.real[..., None], where)
        seen, state = remember(state, where, key, value)
        return self.merge(self.attend_to(query, where, seen)), state


class HearsNumbers(Attention):
    """Padding is heard where it holds numbers, and teaches nothing."""

    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        y, state = super().forward(x, where, state)
        return y + (x * ~where.real[..., None]).nan_to_num(0.0).sum(1, keepdim=True).detach(), state


class TeachesPadding(Attention):
    """Padding changes nothing, but is given a gradient."""

    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        y, state = super().forward(x, where, state)
        heard = (x * ~where.real[..., None]).nan_to_num(0.0).sum(1, keepdim=True)
        return y + (heard - heard.detach()), state


class MixesRowsLater(Attention):
    """Rows are mixed once there is a state, all of them with all."""

    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        return super().forward(x if state is None else x + 0.1 * x.mean(0, keepdim=True), where, state)


class SharesEqualRows(Attention):
    """Only rows that are equal to the first are wrong."""

    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        y, state = super().forward(x, where, state)
        return y * (1 + 1e-6 * (len(x) > 1 and torch.equal(x[0], x[1]))), state


class NoNumber(Attention):
    times = float("nan")

    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        y, state = super().forward(x, where, state)
        return y * self.times, state


class Steep(Attention):
    """Finite outputs, and one infinite gradient, beside which every other is nothing."""

    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        y, state = super().forward(x, where, state)
        first = where.blank(x)[:, :1, :1]
        return y + (first - first.detach()).sqrt(), state


class GivesOneRow(Attention):
    """One row for all, which a careless comparison spreads over them."""

    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        y, state = super().forward(x, where, state)
        return (y if state is None else y[:1]), state


FAULTS: dict[str, tuple[Callable[[], Mixer[Any]], Law]] = {
    "window kept one too short": (lambda: KeptTooShort(Attention.Config(mask=Window(back=3)), WIDTH), split),
    "pads enter the state": (lambda: Retention(pads_enter=True), padding),
    "cost understated": (lambda: CostUnderstated(Attention.Config(), WIDTH), cost),
    "window never forgets": (lambda: WindowNeverForgets(Attention.Config(mask=Window(back=3)), WIDTH), cost),
    "positions counted from the call": (
        lambda: CountsFromTheCall(Attention.Config(position=Rope.Config()), WIDTH),
        split,
    ),
    "mask peeks one ahead": (lambda: _with_mask(PeeksAhead()), reach),
    "mask by index after the ring wrapped": (lambda: MasksByIndex(Attention.Config(mask=Window(back=4)), WIDTH), split),
    "rows mixed": (lambda: MixesRows(Attention.Config(), WIDTH), rows),
    "reach understated": (lambda: ReachUnderstated(Attention.Config(mask=Window(back=3)), WIDTH), reach),
    "dropout in eval": (lambda: DropsInEval(Attention.Config(), WIDTH), split),
    "consumed state given back": (lambda: GivesBackTheConsumed(Attention.Config(), WIDTH), split),
    "state between calls": (lambda: RemembersOnTheSide(Attention.Config(), WIDTH), split),
    "gradients lost in the state": (lambda: LosesGradients(Attention.Config(), WIDTH), split),
    "padding is heard": (lambda: LetsPaddingSpeak(Attention.Config(mask=Whole()), WIDTH), padding),
    "looks both ways but claims to stream": (lambda: ClaimsToStream(Attention.Config(mask=Whole()), WIDTH), reach),
    "looks both ways but takes a state": (lambda: TakesAnyState(Attention.Config(mask=Whole()), WIDTH), split),
    "one scale for the whole call": (lambda: ScalesByTheCall(Attention.Config(), WIDTH), split),
    "a row without new tokens forgets": (ForgetsWhenSilent, padding),
    "no gradient to the source when streaming": (lambda: StarvesTheEncoder(Cross.Config(), WIDTH), split),
    "positions counted by the cache": (
        lambda: CountsInTheCache(Attention.Config(position=Rope.Config()), WIDTH),
        split,
    ),
    "padding of the source is heard": (lambda: HearsSourcePadding(Cross.Config(), WIDTH), padding),
    "padding times zero": (lambda: TimesZero(Attention.Config(), WIDTH), padding),
    "padding is heard where it is a number": (lambda: HearsNumbers(Attention.Config(), WIDTH), padding),
    "padding is given a gradient": (lambda: TeachesPadding(Attention.Config(), WIDTH), padding),
    "rows mixed once there is a state": (lambda: MixesRowsLater(Attention.Config(), WIDTH), rows),
    "equal rows are taken for one": (lambda: SharesEqualRows(Attention.Config(), WIDTH), rows),
    **{
        f"no number, as {law.__name__} sees it": (lambda: NoNumber(Attention.Config(mask=Whole()), WIDTH), law)
        for law in (padding, rows, reach)
    },
    "no number, cut": (lambda: NoNumber(Attention.Config(), WIDTH), split),
    "an infinite gradient, reach": (lambda: Steep(Attention.Config(mask=Whole()), WIDTH), reach),
    "an infinite gradient, padding": (lambda: Steep(Attention.Config(mask=Whole()), WIDTH), padding),
    "one row for all": (lambda: GivesOneRow(Attention.Config(), WIDTH), split),
}
RAISES = ("consumed state given back", "looks both ways but takes a state")
CORRECT: dict[str, Callable[[], Mixer[Any]]] = {
    "plain": attention,
    "window": lambda: attention(mask=Window(back=3)),
    "window, an entry more than needed": lambda: attention(mask=Window(back=3) & Window(back=4)),
    "grouped and turned": lambda: attention(kv_heads=2, position=Rope.Config()),
    "both ways": lambda: attention(mask=Whole()),
    "cross": lambda: Cross(Cross.Config(), WIDTH),
    "recurrence": Retention,
}


def _with_mask(mask: Mask) -> Attention:
    mixer = attention(mask=Causal())
    mixer.mask = mask
    return mixer


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_caught_by_its_law(name: str) -> None:
    torch.manual_seed(0)
    make, law = FAULTS[name]
    finding = law(make(), CASE)
    assert not finding.holds, finding
    assert ("raised" in finding.detail) == (name in RAISES), finding


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("name", CORRECT)
def test_correct_variant_is_silent(name: str, law: Law) -> None:
    torch.manual_seed(0)
    finding = law(CORRECT[name](), CASE)
    assert finding.holds, finding


class Drops(Retention):
    """Correct: what it drops in training it does not drop in use."""

    def forward(self, x: Tensor, where: Where, state: Cell | None = None) -> tuple[Tensor, Cell | None]:
        y, kept = super().forward(x, where, state)
        return nn.functional.dropout(y, 0.5, self.training), kept


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_laws_are_about_use_whatever_mode_a_mixer_is_in(law: Law) -> None:
    torch.manual_seed(0)
    mixer = Drops().train()
    finding = law(mixer, CASE)
    assert finding.holds, finding
    assert mixer.training  # it is left as it was
    assert next(mixer.parameters()).dtype == torch.float32


def test_what_is_not_a_number_does_not_hold() -> None:
    assert Finding("split", 1.0, 1.0, "").holds
    assert not Finding("split", float("nan"), 1.0, "").holds
    assert "FAILS" in str(Finding("split", float("nan"), 1.0, ""))


def test_smallest_failing_case_is_named() -> None:
    torch.manual_seed(0)
    short = split(FAULTS["window kept one too short"][0](), CASE)
    assert "4 tokens cut 3+1: token 3 differs" in short.detail  # the first token that misses the entry dropped
    pads = padding(FAULTS["pads enter the state"][0](), CASE)
    assert "rows of [1, 0], then [1, 1] tokens padded with 10000: row 1 changes" in pads.detail
    far = reach(FAULTS["reach understated"][0](), CASE)
    assert "token 3 is influenced by token 0; declared: 2 back" in far.detail
    bytes_ = cost(FAULTS["cost understated"][0](), CASE)
    assert "after 1 tokens" in bytes_.detail


def test_every_law_is_needed() -> None:
    assert {law for _, law in FAULTS.values()} == set(LAWS)


def test_tensors_of_different_shapes_are_infinitely_far_apart() -> None:
    one, two = torch.ones(1, 3), torch.ones(2, 3)
    assert distance(one, two) == distance(two, one) == distance(one, one.flatten()) == inf
    assert distance(two, two.clone()) == 0.0
