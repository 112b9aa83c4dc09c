"""The laws over what runs compiled: programs, varlen rows and steps keep what their plain modules keep, in float32.

Ragged rows, rows without any token, NaN in the padding and padding on the left go through the very calls that pipelines
and generation make, for every mixer; what has no program runs as plain calls within the same shadow.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor

from heed import engine
from heed.core.cases import distance
from heed.core.contract import NOTHING, Given, Mixer, MixerConfig, Where
from heed.core.errors import InputError
from heed.core.laws import Case, Law, padding, rows, split
from heed.core.spec import Spec
from heed.core.state import Seen, State
from heed.engine import shadow
from heed.engine.compiled import DecoderProgram
from heed.engine.execution import Execution
from heed.engine.passes import passed
from heed.engine.varlen import varlen
from heed.kernels import library, written_out
from heed.kernels.kv_slots import KvCaches
from heed.mixers import MIXERS, Attention, Cross, Retention, Rwkv
from heed.models import Decoder
from heed.models.stack import Stack
from heed.parts.feedforward import FEEDFORWARDS, ChannelMix, Gated
from heed.parts.inputs.padding import Aligned
from heed.parts.layers.norms import RMSNorm
from heed.parts.masks import Whole, Window
from heed.parts.positions import Alibi, Rope
from heed.parts.residual.wiring import PostNorm

WIDTH, VOCABULARY = 24, 19
compiled = pytest.mark.skipif(library() is None, reason="this machine has no C++ compiler")


class Compiled(Mixer[State]):
    """A stack as the engine calls it; with gradients, which programs do not know, it is the plain one."""

    def __init__(self, stack: Stack) -> None:
        super().__init__()
        self.stack, self.reach = stack, stack.reach

    def spec(self) -> Spec:
        return self.stack.spec()

    def start(self, rows: int, given: Given = NOTHING) -> State:
        return self.stack.start(rows, given)

    def forward(self, x: Tensor, where: Where, state: State | None = None) -> tuple[Tensor, State | None]:
        return engine.compile(self.stack)(x, where, state)  # type: ignore[arg-type]


def stack(mixer: MixerConfig, **more: Any) -> Compiled:
    torch.manual_seed(0)
    return Compiled(Stack(Stack.Config(width=WIDTH, depth=2, mixer=mixer, **more)))


class Calls:
    """How many calls were programs, and how many were varlen rows."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.programs = self.varlen = 0

        def counted(*given: Any) -> Any:
            done = passed(*given)
            self.programs += done is not None
            return done

        def also(*given: Any) -> Any:
            self.varlen += 1
            return varlen(*given)

        patch.setattr(shadow, "passed", counted)
        patch.setattr(shadow, "varlen", also)


PROGRAMS: dict[str, Callable[[], Compiled]] = {
    "attention": lambda: stack(Attention.Config()),
    "grouped, turned": lambda: stack(Attention.Config(kv_heads=2, position=Rope.Config()), norm=RMSNorm()),
    "slopes": lambda: stack(Attention.Config(position=Alibi.Config()), wiring=PostNorm()),
    "window": lambda: stack(Attention.Config(mask=Window(back=3)), feedforward=Gated.Config()),
    "both ways": lambda: stack(Attention.Config(mask=Whole())),
    "window both ways": lambda: stack(Attention.Config(mask=Window(back=2, ahead=2))),
    "source": lambda: stack(Attention.Config(), cross=Cross.Config()),
    "retention": lambda: stack(Retention.Config()),
    "rwkv": lambda: stack(Rwkv.Config(), feedforward=ChannelMix.Config()),
    "rwkv, then attention": lambda: Compiled(
        Stack(Stack.Config(width=WIDTH, depth=2, mixer=(Rwkv.Config(), Attention.Config())))
    ),
}


@compiled
@pytest.mark.parametrize("law", [split, padding, rows], ids=lambda law: law.__name__)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_keep_the_laws(name: str, law: Law, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, mixer = Calls(monkeypatch), PROGRAMS[name]()
    finding = law(mixer, Case.make(WIDTH, dtype=torch.float32))
    assert finding.holds, finding
    assert calls.programs >= 3 or (law is split and not mixer.streams)  # what looks ahead refuses to be cut


@pytest.mark.parametrize("kind", MIXERS, ids=lambda kind: str(kind.model_fields["kind"].default))
def test_padding_changes_nothing_within_a_shadow(kind: type[MixerConfig]) -> None:
    for sample in kind.samples()[:2]:
        finding = padding(stack(sample), Case.make(WIDTH, dtype=torch.float32))
        assert finding.holds, (finding, sample)


@pytest.mark.parametrize("kind", FEEDFORWARDS, ids=lambda kind: str(kind.model_fields["kind"].default))
def test_padding_changes_nothing_beside_any_feedforward(kind: type[MixerConfig]) -> None:
    for sample in kind.samples()[:3]:
        finding = padding(stack(Attention.Config(), feedforward=sample), Case.make(WIDTH, dtype=torch.float32))
        assert finding.holds, (finding, sample)


def test_varlen_rows_keep_the_law_of_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch)
    with written_out():  # no programs: then padded rows go as varlen ones
        finding = padding(stack(Attention.Config(mask=Whole())), Case.make(WIDTH, dtype=torch.float32))
    assert finding.holds, finding
    assert calls.programs == 0 < calls.varlen


def alone(model: Mixer[Any], x: Tensor, given: Given) -> Tensor:
    """One row by itself, written out in float64."""
    exact = deepcopy(model).double().eval()
    with torch.no_grad(), written_out():
        return exact(x[None], Where.run(1, len(x)).beside(given))[0][0]


def source(row: int | None = None) -> Given:
    """What cross-attentions look at: ragged rows with no numbers in their padding; or one of them by itself."""
    lengths = (5, 2, 4)
    memory = torch.randn(3, 5, WIDTH, generator=torch.Generator().manual_seed(3))
    if row is not None:
        short = memory[row : row + 1, : lengths[row]].double()
        return Given(encoder_output=Seen.of(Where.run(*short.shape[:2]), short))
    where = Where.ragged(lengths)
    return Given(encoder_output=Seen.of(where, memory.masked_fill(~where.real[..., None], torch.nan)))


def apart(made: Tensor, wanted: Tensor) -> float:
    """Beside the bound of a case of as many numbers."""
    return distance(wanted, made.double()) / Case(made[None], made[None]).bound


@pytest.mark.parametrize("kind", MIXERS, ids=lambda kind: str(kind.model_fields["kind"].default))
@pytest.mark.parametrize("side", ["left", "both"])
def test_padding_on_the_left_changes_nothing(kind: type[MixerConfig], side: str) -> None:
    mixer = stack(kind.samples()[0]).eval()
    real = torch.ones(3, 9, dtype=torch.bool)
    real[1, :4] = real[2, :8] = False
    real[0, 7:] = side == "left"
    x = torch.randn(3, 9, WIDTH, generator=torch.Generator().manual_seed(4)).masked_fill(~real[..., None], torch.nan)
    padded = Aligned.of(real)
    with torch.no_grad():
        y, _ = mixer(padded.align(x), padded.where.beside(source()))
    y = padded.restore(y)
    for row in range(3):
        wanted = alone(mixer.stack, x[row, real[row]].double(), source(row))
        assert apart(y[row, real[row]], wanted) <= 1, kind


STREAMING = [sample for kind in MIXERS if (sample := kind.samples()[0]).build(WIDTH).streams]


@pytest.mark.parametrize("mixer", STREAMING, ids=repr)
def test_steps_after_ragged_prompts_are_those_of_each_row_alone(mixer: MixerConfig) -> None:
    torch.manual_seed(0)
    model = Decoder.Config(vocabulary=VOCABULARY, width=WIDTH, depth=2, mixer=mixer).build().eval()
    lengths = torch.tensor([5, 1, 3])
    ids = torch.randint(VOCABULARY, (3, 9), generator=torch.Generator().manual_seed(5))
    where = Where.ragged(lengths)
    runner = engine.runner(model)
    runner.start(3, source())
    made = [runner.prefill(ids[:, :5].masked_fill(~where.real, -100), where).clone()]
    for step in range(4):
        at = lengths[:, None] + step
        made.append(runner.step(ids.gather(1, at)[:, 0], Where(at, at)).clone())
    for row, length in enumerate(lengths.tolist()):
        wanted = alone(model, ids[row, : length + 4], source(row))[length - 1 :]
        assert apart(torch.stack([logits[row] for logits in made]), wanted) <= 1, mixer


@compiled
def test_steps_of_what_has_a_program_are_compiled() -> None:
    for mixer in (Attention.Config(), Retention.Config(), Rwkv.Config(), Cross.Config()):
        runner = engine.runner(Decoder.Config(vocabulary=VOCABULARY, width=WIDTH, depth=1, mixer=mixer).build().eval())
        runner.start(3, source())
        assert runner.prepare(), runner.reason


@compiled
def test_a_program_is_given_as_many_caches_as_it_reads() -> None:
    """A kernel would read beyond their end."""
    with pytest.raises(InputError, match="the state holds 0 KV caches and 0 cells, the program 1 and 0"):
        Execution(
            DecoderProgram(Decoder.Config(vocabulary=5, width=8, depth=1).build().eval()).program, 1, KvCaches([], [])
        )
