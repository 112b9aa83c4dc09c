"""`heed cost`: weights, operations, sequential steps and bytes of state of a model, beside other mixers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import ceil, log2
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from ..core.contract import Mixer, MixerConfig
from ..core.errors import ConfigError, InputError
from ..core.interfaces import LanguageModel
from ..core.spec import Slot, Spec, price, words
from ..mixers import S4, Attention, Convolution, Mamba, Qrnn, Retention, Rnn, Rwkv
from ..models.backbone import TokenBackbone
from ..models.seq2seq import Seq2seq
from ..parts.attention.multihead import HeadedConfig
from ..parts.masks import Causal, Window
from ..parts.recurrence.retention import RetentionBase
from ..show.pictures import Page, Sheet
from ..show.svg import Chart, chart
from .collect import mixers_of
from .flops import LOOPED, Operations, counted, weights_of
from .subject import VOCABULARY, Subject, given, outputs, subject

if TYPE_CHECKING:
    from rich.console import RenderableType

LENGTHS = (1024, 8192, 131_072)
WINDOW = 1024  # tokens that the window beside a model sees
UNITS = {"": 1, "k": 1024, "m": 1024**2}
TIMED = 512  # tokens of the text that is timed, at most
SCANS = (Mamba, Qrnn, RetentionBase, Rwkv, S4)


@dataclass(frozen=True)
class At:
    """What a text of so many tokens costs; operations are per token. None: it has no place for so many, or it is not
    known before the numbers are.
    """

    tokens: int
    forward: float | None
    training: float | None
    decoding: float | None
    state: int | None  # bytes of all rows


@dataclass(frozen=True)
class Version:
    """The model with another mixer in every block."""

    name: str
    weights: int
    law: str  # of its state, in words
    steps: tuple[int, ...]  # one after the other, in one layer, at each length
    path: tuple[int, ...]  # from the last token to the first, in layers or steps
    state: tuple[int | None, ...]  # bytes at each length


@dataclass(frozen=True)
class Cost:
    """What a model costs."""

    model: str
    rows: int
    weights: int
    lengths: tuple[int, ...]
    at: tuple[At, ...]
    versions: tuple[Version, ...]  # the model as it is comes first
    seconds: float | None = None  # per token of a forward pass, measured here

    def plain(self) -> dict[str, Any]:
        """For machines."""
        return asdict(self)

    def text_figure(self) -> RenderableType:
        """Two tables."""
        from rich.console import Group
        from rich.table import Table

        lines: list[RenderableType] = [f"[bold]{self.model}[/]: {self.weights:,} weights, {self.rows} row(s)"]
        for sheet in self._sheets():
            table = Table(title=sheet.title, title_justify="left", box=None, padding=(0, 2, 0, 0))
            table.add_column("")
            for name in sheet.columns:
                table.add_column(name, justify="right")
            for name, cells in sheet.rows:
                table.add_row(name, *cells)
            lines += ["", table]
        lines += ["", *(f"{version.name}: remembers {version.law}" for version in self.versions)]
        if self.seconds is not None:
            lines.append(f"measured here: {self.seconds * 1e6:,.1f} µs per token, forwards, {TIMED} tokens at most")
        return Group(*lines)

    def html(self) -> str:
        """The tables, and the bytes of state over the length."""
        drawings = []
        curves = {
            version.name: [(n, float(b)) for n, b in zip(self.lengths, version.state, strict=True) if b]
            for version in self.versions
        }
        curves = {name: points for name, points in curves.items() if len(points) > 1}
        if curves:
            told = f"bytes of state over the length: {', '.join(curves)}"
            drawings.append(chart(Chart(curves, "tokens", "bytes of state"), told))
        return Page(f"Cost of {self.model}", list(self._sheets()), drawings).html()

    def _sheets(self) -> Iterator[Sheet]:
        per = [
            (_tokens(at.tokens), (_many(at.forward), _many(at.training), _many(at.decoding), _bytes(at.state)))
            for at in self.at
        ]
        yield Sheet("per token of a text of", ("FLOPs forward", "FLOPs training", "FLOPs decoding", "state"), per)
        names = [_tokens(length) for length in self.lengths]
        yield Sheet(
            "bytes of state",
            ("weights", *names),
            [(v.name, (f"{v.weights:,}", *map(_bytes, v.state))) for v in self.versions],
        )
        both = [(v.name, tuple(f"{s:,} / {p:,}" for s, p in zip(v.steps, v.path, strict=True))) for v in self.versions]
        yield Sheet("sequential steps of a layer / longest path between two tokens", names, both)


def cost(
    model: Any,
    *,
    lengths: Sequence[int | str] = LENGTHS,
    rows: int = 1,
    vocabulary: int = VOCABULARY,
    time: bool = False,
) -> Cost:
    """What a model costs: a configuration, the name of a recipe, a .toml file, a run or a checkpoint.

    Nothing is computed and no weights are read, unless `time` asks for seconds.
    """
    about = subject(model, vocabulary=vocabulary)
    if rows < 1:
        raise InputError(f"a cost is that of 1 or more rows, not {rows}")
    sizes = tuple(sorted({tokens_of(length) for length in lengths}))
    if not sizes:
        raise InputError("name at least one length: lengths=[1024] (--lengths 1k)")
    versions = tuple(_version(name, one, sizes, rows) for name, one in _versions(about))
    at = tuple(_at(about, size, state) for size, state in zip(sizes, versions[0].state, strict=True))
    seconds = _timed(about) if time else None
    return Cost(about.name, rows, versions[0].weights, sizes, at, versions, seconds)


def tokens_of(given: int | str) -> int:
    """128k = 131,072."""
    if isinstance(given, str):
        number, unit = (given[:-1], given[-1].lower()) if given[-1:].lower() in ("k", "m") else (given, "")
        if not number.isdigit():
            raise InputError(f"a length is a number of tokens, as 512, 8k or 1m, not {given!r}")
        given = int(number) * UNITS[unit]
    if given < 1:
        raise InputError(f"a text has 1 or more tokens, not {given}")
    return given


def _at(about: Subject, tokens: int, state: int | None) -> At:
    model = about.model()
    longest = model.longest if isinstance(model, LanguageModel) else None
    if longest is not None and tokens > longest:
        return At(tokens, None, None, None, None)
    try:
        found: Operations | None = counted(about, tokens)
    except InputError:
        found = None
    if found is None:
        return At(tokens, None, None, None, state)
    step = None if found.step is None else float(found.step)
    return At(tokens, found.forward / tokens, (found.forward + found.backward) / tokens, step, state)


# --- other mixers in its place ---


def _versions(about: Subject) -> Iterator[tuple[str, Subject]]:
    yield "as it is", about
    shape = about.shape
    inner = shape.decoder if isinstance(shape, Seq2seq.Config) else shape
    if not isinstance(inner, TokenBackbone.Config):
        return
    for name, mixer in _others(inner):
        try:
            changed: Any = inner.model_copy(update={"mixer": (mixer,), "one_position": False})
            whole = shape.model_copy(update={"decoder": changed}) if inner is not shape else changed
            other = Subject(name, whole)
            other.model()
        except ConfigError:  # a shape that takes no other mixer
            continue
        yield name, other


def _others(inner: TokenBackbone.Config) -> Iterator[tuple[str, MixerConfig]]:
    first = inner.mixer_of(0)
    heads = first.heads if isinstance(first, HeadedConfig) else next(h for h in (8, 4, 2, 1) if inner.width % h == 0)
    size = first.head_size if isinstance(first, HeadedConfig) else None

    def attention(kv_heads: int, back: int | None = None) -> MixerConfig:
        mask = Causal() if back is None else Window(back=back)
        return Attention.Config(heads=heads, kv_heads=kv_heads, head_size=size, mask=mask)

    yield "attention, MHA", attention(heads)
    groups = next((g for g in (heads // 4, heads // 2) if g > 1 and heads % g == 0), 0)
    if groups:
        yield f"attention, GQA of {groups}", attention(groups)
    yield "attention, MQA", attention(1)
    yield f"attention, window {WINDOW}", attention(heads, WINDOW)
    yield "convolution", Convolution.Config()
    yield "retention", Retention.Config(heads=heads)
    yield "rnn", Rnn.Config()


def _version(name: str, about: Subject, sizes: Sequence[int], rows: int) -> Version:
    model = about.model()
    spec: Spec = model.spec() if model.streams else ()
    mixers = [mixer for mixer, _ in mixers_of(model).values()]
    state = tuple(rows * price(spec, size, size) if model.streams else None for size in sizes)
    law = _law(spec) if model.streams else "nothing, it does not stream"
    steps = tuple(max((_steps(mixer, size) for mixer in mixers), default=1) for size in sizes)
    path = tuple(min((_path(mixer, size) for mixer in mixers), default=1) for size in sizes)
    return Version(name, weights_of(model), law, steps, path, state)


def _law(spec: Spec) -> str:
    """A layer's, if all are alike."""
    said = list(dict.fromkeys(words(spec).split("; ")))
    return "; ".join(said) + " in each layer"


def _steps(mixer: Mixer[Any], tokens: int) -> int:
    """Of a training pass, one after the other: all tokens of a loop, the depth of the tree of a scan."""

    def of(part: torch.nn.Module) -> int:
        if isinstance(part, LOOPED):
            return tokens
        return max(1, ceil(log2(tokens))) if isinstance(part, SCANS) else 1

    return max(of(part) for part in mixer.modules())


def _path(mixer: Mixer[Any], tokens: int) -> int:
    """From the first token to the last: through one layer, through a recurrence token by token, or by its reach."""
    far = (mixer.reach.back, mixer.reach.ahead)
    if None not in far:
        return max(1, ceil((tokens - 1) / max(1, *(int(side or 0) for side in far))))
    grows, fixed = _kinds(mixer.spec()) if mixer.streams else (True, False)
    return tokens if fixed and not grows else 1


def _kinds(spec: Spec) -> tuple[bool, bool]:
    """Whether something is kept of every token, and whether something is kept whatever the length."""
    if isinstance(spec, Slot):
        entries = spec.entries
        return entries.of_tokens and entries.cap is None, bool(entries.fixed)
    parts = [_kinds(part) for part in spec]
    return any(grows for grows, _ in parts), any(fixed for _, fixed in parts)


def _timed(about: Subject) -> float:
    """Seconds per token of a forward pass with fresh weights on this machine: the quickest of three, after one more."""
    model = about.shape.build().eval()
    tokens = TIMED if not isinstance(model, LanguageModel) else min(TIMED, model.longest or TIMED)
    reading = given(about.shape, tokens, device="cpu")
    run: Callable[[], Any] = lambda: outputs(model, reading)  # noqa: E731
    best = float("inf")
    with torch.no_grad():
        run()
        for _ in range(3):
            begun = perf_counter()
            run()
            best = min(best, perf_counter() - begun)
    return best / tokens


def _tokens(count: int) -> str:
    for unit, size in (("m", UNITS["m"]), ("k", UNITS["k"])):
        if count % size == 0:
            return f"{count // size}{unit} tokens"
    return f"{count:,} tokens"


def _many(count: float | None) -> str:
    if count is None:
        return "–"
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:g}"


def _bytes(count: int | None) -> str:
    if count is None:
        return "–"
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"
