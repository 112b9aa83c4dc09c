"""heed's side: each subject as a user would do it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

from .. import __version__
from .base import Contestant, Done, Prepared, Round
from .rounds import first_token
from .shapes import PAIRS, built, paired, retnet
from .work import BEAMS, Work

if TYPE_CHECKING:
    from torch import nn

    from ..core.contract import Mixer
    from ..models import Seq2seq
    from ..pipelines.encoder import EncoderPipeline
    from ..tasks.base import Batch
    from ..weights.edits.quantised import Bits

LOAD = """
import torch
from heed.runs import load
from heed.decode import generate
model = load(path{quantise}).model
generate(model, [list(range(8, 24))], max_new_tokens=1, end=None)
"""


class Heed(Contestant):
    """In the precision that is asked for; what cannot be quantised (training, attention alone) is float32."""

    name: ClassVar[str] = "heed"
    package: ClassVar[str] = "heed"
    distribution: ClassVar[str] = "heed-attention"

    @property
    def version(self) -> str:
        """Of the heed that is imported, which need not be the one that is installed."""
        return __version__

    def precision(self, work: Work) -> str | None:
        if work.subject in {"train", "attention"}:
            return "fp32"
        return "ternary" if work.model == "bitnet" else work.precision

    def prepare(self, work: Work) -> Prepared:
        return _told(SUBJECTS[work.subject](work))


class Twin(Heed):
    """heed with int8 weights, beside a model of ternary ones of the same shape."""

    name: ClassVar[str] = "int8-twin"

    def precision(self, work: Work) -> str | None:
        return "int8" if work.model == "bitnet" else None

    def prepare(self, work: Work) -> Prepared:
        return _told(_writing(work, ternary=False))


def _told(ready: Prepared) -> Prepared:
    """Says so if the kernels could not be built: then these are the figures of what torch computes in their place."""
    from ..kernels import library

    if library() is not None:
        return ready
    return replace(ready, ways={f"without kernels {name}".strip(): way for name, way in ready.ways.items()})


def _channels(work: Work) -> dict[str, Bits | None]:
    """Weights of 8 bits with tokens of 16 bits or, as peers have it, of 8: two ways of doing it."""
    match work.precision:
        case "fp32":
            return {"": None}
        case "int8":
            return {"": "int8", "w8a8": "w8a8"}
        case "int4":
            return {"": "int4"}


def _writing(work: Work, *, ternary: bool = True) -> Prepared:
    """Decoding and prefill: the loop that `generate` is, greedily."""
    from ..decode import generate
    from ..weights.edits import Packed, Quantised, edit

    prompts, limit = work.rows(), work.writes or 1

    def way(bits: Bits | None) -> tuple[Round, int]:
        model = _loaded(work)
        edits = () if bits is None else (Quantised(bits=bits),)
        edit(model, *((Packed(), *edits) if work.model == "bitnet" and ternary else edits))
        model.eval()

        def written() -> Done:
            lines = [best[0].tokens for best in generate(model, prompts, max_new_tokens=limit, end=None)]
            count = sum(map(len, lines)) if work.writes else work.units
            return Done(count, tuple(lines[0]))

        return written, _read_per_token(model)

    kinds: dict[str, Bits | None] = {"": "int8"} if work.model == "bitnet" else _channels(work)
    made = {name: way(bits) for name, bits in kinds.items()}
    return Prepared({name: written for name, (written, _) in made.items()}, next(iter(made.values()))[1])


def _loaded(work: Work) -> Mixer[Any]:
    from .. import weights

    return retnet(work.config) if work.model == "retnet" else weights.load(work.folder).model


def _read_per_token(model: nn.Module) -> int:
    """Weights, but for the rows of an embedding that are not looked up."""
    held = {tensor.data_ptr(): tensor for tensor in (*model.parameters(), *model.buffers())}
    head, table = (_places(model.get_submodule(name)) for name in ("head", "embeddings.table"))
    return sum(tensor.nbytes for place, tensor in held.items() if place not in table - head)


def _places(module: nn.Module) -> set[int]:
    return {tensor.data_ptr() for tensor in (*module.parameters(), *module.buffers())}


def _encoding(work: Work) -> Prepared:
    """`heed.load(path).embed`, with ids instead of texts."""
    from ..runs import load
    from ..text import Framed

    rows = [Framed(row, [0] * len(row)) for row in work.rows()]

    def way(bits: Bits | None) -> Round:
        ready = load(work.folder, quantise=bits)
        return lambda: Done(len(cast("EncoderPipeline", ready).embed_framed(rows)))

    return Prepared({name: way(bits) for name, bits in _channels(work).items()})


def _translating(work: Work) -> Prepared:
    import torch

    from .. import engine, weights
    from ..core.contract import Where
    from ..decode import Beam, generate
    from ..weights.edits import Quantised, edit

    sources = torch.tensor(work.rows())
    prompts = [[int(work.config["decoder_start_token_id"])]] * len(sources)

    def way(bits: Bits | None) -> Round:
        model = cast("Seq2seq", weights.load(work.folder).model)
        if bits is not None:
            edit(model, Quantised(bits=bits))
        model.eval()

        def translated() -> Done:
            given = engine.runner(model).encode(sources, Where.run(*sources.shape))
            found = generate(
                model, prompts, max_new_tokens=work.writes, end=None, strategy=Beam(beams=BEAMS), given=given
            )
            return Done(sum(len(best[0].tokens) == work.writes for best in found), tuple(found[0][0].tokens))

        return translated

    return Prepared({name: way(bits) for name, bits in _channels(work).items()})


def _training(work: Work) -> Prepared:
    """A step as `heed train` makes it: fused loss, fused AdamW."""
    import numpy as np

    from .. import engine
    from ..pipelines.base import Padded
    from ..runs.training import Training
    from ..tasks import Causal, Translate
    from ..threads.teams import adapting, standard
    from ..train.optim import adamw

    batch: Batch
    rows = [np.array(row, np.int32) for row in work.rows(more=1)]
    if work.model in PAIRS:
        model: Mixer[Any] = paired(work.config)
        task: Causal | Translate = Translate(smoothing=0.0)
        batch = task.batch([(row[:-1], row) for row in rows])
    else:
        model, task = built(work.config), Causal()
        batch = task.batch([(row,) for row in rows])
    assert batch.source is None or isinstance(batch.source, Padded)
    optimizer = adamw(model.train(), Training())
    held = ExitStack()  # until the process ends: `step` keeps it
    waiting = held.enter_context(adapting(standard()))

    def step(held: ExitStack = held) -> Done:
        waiting.look()
        loss = task.loss(engine.compile(model), batch).total / batch.tokens
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return Done(batch.tokens, figures={})

    return Prepared({"": step})


def _attending(work: Work) -> Prepared:
    """One layer of attention with its projections, causal, without gradients."""
    import torch

    from ..core.contract import Where
    from ..mixers import Attention

    layer = Attention.Config(heads=8).build(512).eval()
    x = torch.randn(work.batch, work.reads, 512)
    where = Where.run(work.batch, work.reads)

    def mixed() -> Done:
        with torch.no_grad():
            y, _ = layer(x, where)
        return Done(y.shape[0] * y.shape[1])

    return Prepared({"": mixed})


def _starting(work: Work) -> Prepared:
    quantise = "" if work.precision == "fp32" else f", quantise={work.precision!r}"
    return Prepared({"": first_token(sys.executable, work.folder, LOAD.format(quantise=quantise))})


SUBJECTS: dict[str, Callable[[Work], Prepared]] = {
    "decode": _writing,
    "prefill": _writing,
    "encode": _encoding,
    "translate": _translating,
    "train": _training,
    "attention": _attending,
    "load": _starting,
}
