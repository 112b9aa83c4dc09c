"""Pictures of mechanisms: each makes numbers of a configuration, and nothing is drawn here."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from ..core.cases import Case, influence
from ..core.config import Config, OneOf, kind_of
from ..core.contract import MixerConfig, Where
from ..core.errors import InputError
from ..mixers import MIXERS
from ..models.stack import Stack
from ..parts.layers.norms import BatchNorm, LayerNorm
from ..parts.masks import MASKS, AnyMask, Mask
from ..parts.positions import POSITIONS, AddedConfig, PositionConfig, RelativeConfig
from ..parts.residual.wiring import DeepNorm, PostNorm, PreNorm, WiringConfig
from ..parts.scores import Boxcar, Constant, Epanechnikov, Gaussian, Kernel, Triangular, pool
from ..parts.scores.kernels import KernelConfig
from ..runs.recipe import Recipe, find, shipped
from ..runs.training import AnySchedule, Cosine, InverseSqrt, Linear, Schedule
from ..runs.training import Constant as Held
from .pairs import word
from .pictures import Asked, Curves, Picture, Square, chosen, square

WIDTH, HEADS, SIZE = 128, 4, 32  # of a stream, and of its heads
TOKENS, STEPS = 50, 1000
SAMPLES = 256  # draws of a mean
DEPTH = 12  # blocks of a stack whose gradients are measured
KERNELS: tuple[type[KernelConfig] | type[Constant.Config], ...] = (
    Gaussian.Config,
    Boxcar.Config,
    Triangular.Config,
    Epanechnikov.Config,
    Constant.Config,
)
SCHEDULES: tuple[type[Schedule], ...] = (Held, Cosine, Linear, InverseSqrt)


class AnyCode(Config):
    """One of the position codes."""

    it: Annotated[PositionConfig, OneOf(lambda: POSITIONS)]


class AnyRule(Config):
    """One of the masks."""

    it: AnyMask


class AnyPattern(Config):
    """One of the mixers, which may see in a pattern of its own."""

    it: Annotated[MixerConfig, OneOf(lambda: MIXERS)]


class AnyKernel(Config):
    """One of the kernels."""

    it: Annotated[Config, OneOf(lambda: KERNELS)]


class AnyRise(Config):
    """One of the schedules."""

    it: AnySchedule


# --- positions ---


def position(asked: Asked) -> Picture:
    """What a code adds to the stream, or to the scores of alike queries and keys."""
    config, tokens = chosen(asked, AnyCode, "sinusoid"), asked.tokens or TOKENS
    torch.manual_seed(0)
    title = f"position code {kind_of(type(config))}, {tokens} tokens"
    if isinstance(config, AddedConfig):
        code = config.build(WIDTH)
        values = code.code(torch.arange(tokens)[None])[0].detach()
        return Picture(title, (square(f"what is added, {tokens} × {WIDTH}", values),), facts=(("width", str(WIDTH)),))
    if not isinstance(config, RelativeConfig):
        raise InputError(f"{type(config).__qualname__} is no position code")
    values = _scores(config, tokens)
    maps = tuple(square(f"scores of alike queries and keys, head {head}", one) for head, one in enumerate(values))
    last = {f"head {head}": _falling(one) for head, one in enumerate(values)}
    return Picture(title, maps, (Curves("tokens back", "score", last),), (("heads", f"{HEADS} of {SIZE} channels"),))


def _scores(config: RelativeConfig, tokens: int) -> Tensor:
    """The scores of queries and keys that are all alike, of length one; whatever they differ by is the code's."""
    code, where = config.build(HEADS, SIZE), Where.run(1, tokens)
    alike = torch.full((1, tokens, HEADS, SIZE), SIZE**-0.5)
    query, key = code.meet(code.turn(alike, where), code.turn(alike, where), where, where)
    found = torch.einsum("bthd,bnhd->bhtn", query, key)
    if code.bias is not None:
        found = found + code.bias(query, key, where, where)
    return found[0].detach()


def _falling(scores: Tensor) -> tuple[tuple[float, float], ...]:
    """Of the last token, by distance."""
    return tuple((float(back), float(value)) for back, value in enumerate(scores[-1].flip(0)))


# --- masks ---


def mask(asked: Asked) -> Picture:
    """Which token may look at which; for a mixer with a pattern of its own, which tokens it is influenced by."""
    words = (asked.text or "").split()
    tokens = asked.tokens or len(words) or 20
    if words and len(words) != tokens:
        raise InputError(f"the text has {len(words)} words and {tokens} tokens were asked for; leave tokens out")
    named = asked.config if isinstance(asked.config, str) else None
    of_mixer = isinstance(asked.config, MixerConfig) or (named in MIXERS.named and named not in _mask_kinds())
    config = chosen(asked, AnyPattern if of_mixer else AnyRule, "causal")
    seen = _pattern(config, tokens) if isinstance(config, MixerConfig) else _allowed(config, tokens)
    names = words or [str(place) for place in range(tokens)]
    pairs = int((seen > 0).sum())
    facts = [
        ("pairs that are seen", f"{pairs:,} of {tokens**2:,} ({pairs / tokens**2:.0%})"),
        ("of one token at most", f"{int((seen > 0).sum(1).max())}"),
        *_who(seen, names, asked.token),
    ]
    return Picture(
        f"mask {kind_of(type(config))}, {tokens} tokens",
        (square("who sees whom", seen, names, names),),
        (),
        tuple(facts),
    )


def _mask_kinds() -> set[str]:
    return {kind_of(kind) for kind in MASKS}


def _allowed(config: Config, tokens: int) -> Tensor:
    """The share of the patterns that allow a pair. [T, T]"""
    if not isinstance(config, Mask):
        raise InputError(f"{type(config).__qualname__} is no mask")
    where = Where.run(1, tokens)
    config.check(where.span, where.span)
    order = torch.arange(tokens)
    seen = config.allows(order[None, None, :, None], order[None, None, None, :])[0]
    return seen.float().mean(0).expand(tokens, tokens)


def _pattern(config: MixerConfig, tokens: int) -> Tensor:
    """By whom each token of a mixer with fresh weights is influenced at all: 1 or 0. [T, T]"""
    torch.manual_seed(0)
    mixer = config.build(24).double().eval()
    return (influence(mixer, Case.make(24, rows=1, tokens=tokens, source=tokens)) > 0).float()


def _who(seen: Tensor, names: list[str], token: str | None) -> Iterator[tuple[str, str]]:
    if token is None:
        return
    places = [place for place, name in enumerate(names) if word(name).lower() == token.lower()]
    if not places:
        raise InputError(f"there is no token {token!r}; there is {' '.join(names)}")
    for place in places:
        sees = [names[at] for at in range(len(names)) if seen[place, at] > 0]
        by = [names[at] for at in range(len(names)) if seen[at, place] > 0]
        yield f"{names[place]} ({place}) sees", f"{len(sees)}: {' '.join(sees) or 'nothing'}"
        yield f"{names[place]} ({place}) is seen by", f"{len(by)}: {' '.join(by) or 'nobody'}"


# --- kernels and scores ---


def kernel(asked: Asked) -> Picture:
    """Nadaraya-Watson regression: one kernel at several widths, or all kernels at one. Of y = 2 sin x + x^0.8."""
    draw = torch.Generator().manual_seed(0)
    x = (torch.rand(asked.tokens or TOKENS, generator=draw) * 5).sort().values[:, None]
    y = _truth(x) + 0.5 * torch.randn(x.shape, generator=draw)
    at = torch.linspace(0, 5, 101)[:, None]
    if asked.config is None:
        kinds: list[Any] = [kind() for kind in KERNELS]
        told = {kind_of(type(one)): one for one in kinds}
    else:
        config: Any = chosen(asked, AnyKernel, "gaussian")
        widths = (0.1, 0.3, 1.0, 3.0) if isinstance(config, KernelConfig) else ()
        told = {f"{kind_of(type(config))}, width {w:g}": config.model_copy(update={"width": w}) for w in widths}
        told |= {f"{kind_of(type(config))}, as given": config}
    lines, squares, facts = {"truth": _line(at, _truth(at)), "data": _line(x, y)}, list[Square](), []
    for name, one in told.items():
        fit, weight = (found.detach() for found in pool(_built(one), at, x, y))
        lines[name] = _line(at, fit)
        ticks = [f"{float(value):.2f}" for value in at[::2, 0]]
        squares.append(square(f"weights of {name}", weight[::2], ticks, [f"{float(value):.2f}" for value in x[:, 0]]))
        facts.append((f"error of {name}", f"{float((fit - _truth(at)).square().mean()):.4f}"))
    return Picture("Nadaraya-Watson kernel regression", tuple(squares), (Curves("x", "y", lines),), tuple(facts))


def _built(config: Any) -> Kernel:
    made: Kernel = config.build(1, 1)
    return made


def _truth(x: Tensor) -> Tensor:
    return 2 * x.sin() + x**0.8


def _line(x: Tensor, y: Tensor) -> tuple[tuple[float, float], ...]:
    return tuple(zip(x.flatten().tolist(), y.flatten().tolist(), strict=True))


def scores(asked: Asked) -> Picture:
    """Why scores are divided by √d: without it their variance is d, and a softmax of them is a choice of one key."""
    if asked.config is not None or asked.changes:
        raise InputError("a plot of scores takes no configuration: it is about q·k and q·k / √d")
    keys = asked.tokens or 16
    sizes = [2**power for power in range(11)]
    lines: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for size in sizes:
        draw = torch.Generator().manual_seed(size)
        query, key = torch.randn(SAMPLES, 1, size, generator=draw), torch.randn(SAMPLES, keys, size, generator=draw)
        dots = (query * key).sum(-1)
        for name, one in (("q·k", dots), ("q·k / √d", dots / sqrt(size))):
            weight = one.softmax(-1)
            entropy = -(weight * weight.clamp(min=1e-30).log()).sum(-1).mean()
            slope = (weight * (1 - weight)).mean()
            told = {
                "variance of a score": float(one.var()),
                "largest weight": float(weight.amax(-1).mean()),
                "entropy of the weights": float(entropy),
                "gradient of a weight by its score": float(slope),
            }
            for what, value in told.items():
                lines.setdefault(what, {}).setdefault(name, []).append((float(size), max(value, 1e-6)))
    curves = tuple(
        Curves("channels d", what, {name: tuple(line) for name, line in some.items()}, logarithmic=True)
        for what, some in lines.items()
    )
    return Picture(f"scores and the softmax of {keys} of them", (), curves, (("draws", str(SAMPLES)),))


# --- norms and depth ---


def norm(asked: Asked) -> Picture:
    """Batch norm beside layer norm, and the size of gradients by depth for each place of the norm."""
    if asked.config is not None or asked.changes:
        raise InputError(
            "a plot of norms takes no configuration: it compares batch with layer norm, pre- with post-norm"
        )
    torch.manual_seed(0)
    x = torch.randn(3, 8, 16) * torch.tensor([1.0, 3.0, 0.3])[:, None, None] + 1
    squares, facts = [square("row 0 before", x[0])], []
    for name, config in (("batch norm", BatchNorm()), ("layer norm", LayerNorm())):
        layer = config.build(16).train()
        among, alone = layer(x)[0].detach(), layer(x[:1])[0].detach()
        squares += [square(f"row 0 after {name}", among), square(f"what other rows change, {name}", among - alone)]
        facts.append(
            (f"{name}: row 0 changes with the rows beside it by at most", f"{float((among - alone).abs().max()):.3g}")
        )
    depth = asked.tokens or DEPTH
    wirings = {"pre-norm": PreNorm(), "post-norm": PostNorm(), "DeepNorm": DeepNorm.alone(depth)}
    lines = {name: _gradients(wiring, depth) for name, wiring in wirings.items()}
    facts += [
        (f"{name}: gradient of the first block / of the last", f"{line[0][1] / line[-1][1]:.3g}")
        for name, line in lines.items()
    ]
    curves = Curves("block", "gradient of its weights", lines)
    return Picture(f"norms, and gradients in {depth} blocks", tuple(squares), (curves,), tuple(facts))


def _gradients(wiring: WiringConfig, depth: int) -> tuple[tuple[float, float], ...]:
    """Of each block's weights, root of the sum of squares, for a random loss of the last token's output."""
    torch.manual_seed(0)
    stack = Stack(Stack.Config(width=32, depth=depth, wiring=wiring)).train()
    x = torch.randn(4, 16, 32)
    y, _ = stack(x, Where.run(4, 16))
    (y * torch.randn_like(y)).mean().backward()  # type: ignore[no-untyped-call]
    return tuple((float(place), _size(block)) for place, block in enumerate(stack.layers))


def _size(block: nn.Module) -> float:
    return sqrt(sum(float(w.grad.square().sum()) for w in block.parameters() if w.grad is not None))


# --- schedules ---


def schedule(asked: Asked) -> Picture:
    """The learning rate over the steps: of one schedule, of a recipe, or of all schedules side by side."""
    steps = asked.tokens or STEPS
    named = asked.config if isinstance(asked.config, str) else ""
    if named in shipped() or (Path(named).suffix in (".toml", ".json") and "training" in Path(named).read_text()):
        training = Recipe.read(find(named), asked.changes).training
        steps = asked.tokens or training.steps
        lines = {kind_of(type(training.schedule)): _rates(training.schedule, steps, training.optimizer.lr)}
        return Picture(
            f"learning rate of {named}", (), (Curves("step", "learning rate", lines),), (("steps", str(steps)),)
        )
    if asked.config is None and not asked.changes:
        known: list[Schedule] = [kind() for kind in SCHEDULES]
    else:
        (one,) = (chosen(asked, AnyRise, "cosine"),)
        if not isinstance(one, Schedule):
            raise InputError(f"{type(one).__qualname__} is no schedule")
        known = [one]
    lines = {kind_of(type(one)): _rates(one, steps, 1.0) for one in known}
    return Picture("learning rate", (), (Curves("step", "share of the peak", lines),), (("steps", str(steps)),))


def _rates(one: Schedule, steps: int, peak: float) -> tuple[tuple[float, float], ...]:
    every = max(1, steps // 200)
    return tuple((float(step), peak * one.factor(step, steps)) for step in sorted({*range(1, steps + 1, every), steps}))
