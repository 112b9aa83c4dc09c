"""An evaluation as a page to look at: its metrics, which class was taken for which, the worst mistakes as pictures.

Of a model whose layers compress (CRATE) also the coding rate and the sparsity behind each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from ..core.errors import HeedError, InputError
from ..core.interfaces import Sees
from ..media.images import upright
from ..models.architectures.crate import LayerStats, layerwise
from ..parts.look import points
from ..show.pictures import Page, Sheet, Shot
from ..show.svg import Chart, Even, below, chart
from ..tasks.media.base import Pixels, name_of, place_of
from ..tasks.media.images import PictureTask
from ..tasks.media.judged import Judged, Mistake
from ..tasks.sounds.scores import Heard
from .folder import Run

if TYPE_CHECKING:
    from ..pipelines import Pipeline
    from .evaluate import Evaluation

SIDE = 128  # pixels of a picture on the page
LOOKED_AT = 64  # images that layers are measured on
DIGITS = 4


def write_page(path: Path, found: Evaluation, model: Run | Pipeline) -> None:
    """The page of an evaluation of classes, or of transcripts."""
    judged = {name: metrics for name, metrics in found.items() if isinstance(metrics, Judged)}
    heard = {name: metrics for name, metrics in found.items() if isinstance(metrics, Heard)}
    if not judged and not heard:
        raise InputError(
            "--html shows which class was taken for which, or what was heard; these metrics are of neither"
        )
    name = model.path.resolve().name if isinstance(model, Run) else model.what
    worst = [(split, mistake) for split, one in judged.items() for mistake in one.mistakes]
    page = Page(
        f"{name}: evaluated",
        [
            _metrics(found),
            *(_confusion(split, one) for split, one in judged.items()),
            *(_misheard(split, one) for split, one in heard.items()),
        ],
        list(_drawings(model, judged)),
        "The worst mistakes: where what is right was held to be least probable",
        [_shot(split, mistake) for split, mistake in worst],
    )
    page.write(path)


def _metrics(found: Evaluation) -> Sheet:
    columns: dict[str, Mapping[str, float | str]] = {}
    for split, metrics in found.items():
        columns |= {split: metrics, **found.floors.get(split, {})}
    rows = dict.fromkeys(key for one in columns.values() for key in one)
    return Sheet(
        "Metrics, and what is reached without attention",
        list(columns),
        [(row, [_number(one.get(row, "")) for one in columns.values()]) for row in rows],
    )


def _number(value: float | str) -> str:
    """Counts in full, measured numbers in few digits."""
    if isinstance(value, str):
        return value
    return f"{value:,.{DIGITS}g}" if type(value) is float else f"{value:,}"


def _confusion(split: str, judged: Judged) -> Sheet:
    share = judged.confusion / judged.confusion.sum(1, keepdims=True).clip(min=1)
    rows = [
        (name, [str(count) if count else "·" for count in row])
        for name, row in zip(judged.classes, judged.confusion.tolist(), strict=True)
    ]
    return Sheet(f"{split}: what is right (rows), what was said (columns)", judged.classes, rows, share.tolist())


def _misheard(split: str, heard: Heard) -> Sheet:
    rows = [(Path(one.cell).name, [one.wanted, one.found, str(one.errors)]) for one in heard.mistakes]
    return Sheet(f"{split}: the worst transcripts", ["said", "heard", "wrong characters"], rows)


def _shot(split: str, mistake: Mistake) -> Shot:
    told = [
        f"{mistake.wanted}, taken for {mistake.found}",
        f"{mistake.probability:.1%}; right: {mistake.right:.1%}",
        f"{split}: {Path(name_of(mistake.cell)).name}",
    ]
    try:
        picture = upright(place_of(mistake.cell))
    except (HeedError, OSError):  # it is no picture, or no longer there
        return Shot(None, told)
    picture.thumbnail((SIDE, SIDE))
    png = BytesIO()
    picture.save(png, "PNG")
    return Shot(png.getvalue(), told)


# --- CRATE ---


def _drawings(model: Run | Pipeline, judged: Mapping[str, Judged]) -> Iterator[str]:
    """Rate and sparsity by layer, of a model whose mixers are subspaces."""
    if not isinstance(model, Run) or not isinstance(task := model.recipe.task, PictureTask):
        return
    net = model.model().eval()
    if not isinstance(net, Sees) or not any(name.endswith(".mixer.rate") for name in points(net)):
        return  # its mixers have no subspaces
    cells = next(iter(judged.values())).cells[:LOOKED_AT]
    layers = layerwise(net, pixels_of(task, cells))
    rate, share = (
        chart(Chart({up: [(float(n), _of(one, field)) for n, one in enumerate(layers, 1)]}, "layer", up, Even), up)
        for field, up in (("rate", "coding rate, nats"), ("sparsity", "channels not zero"))
    )
    yield below([rate, share], "coding rate and sparsity behind every layer")


def pixels_of(task: PictureTask, cells: tuple[str, ...]) -> Tensor:
    """Images as a model takes them. [B, C, H, W]"""
    return Pixels.of_images([task.decoded(cell, None).numpy() for cell in cells]).tokens


def _of(layer: LayerStats, field: str) -> float:
    return float(layer._asdict()[field])
