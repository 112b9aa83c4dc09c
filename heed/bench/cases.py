"""Which contests there are: subjects, the models they are about, and the usual sizes."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.errors import InputError
from .shapes import MODELS, Model
from .work import Precision, Subject, Work

SUITS: dict[Subject, tuple[Model, ...]] = {  # the usual one first
    "decode": ("gpt2", "llama", "rwkv", "retnet", "bitnet"),
    "prefill": ("gpt2", "llama", "rwkv", "retnet", "bitnet"),
    "encode": ("bert",),
    "translate": ("transformer",),
    "train": ("gpt-50k", "transformer"),
    "attention": MODELS,
    "load": ("gpt2", "llama"),
}
WHOLE = ("train", "attention")  # in float32 alone


@dataclass(frozen=True)
class Size:
    """What a user may change; None = as usual."""

    batch: int | None = None
    tokens: int | None = None  # read by encode, prefill, train and attention; written by decode and translate
    threads: int = 1


def contests(subject: Subject | None, model: Model | None, precision: Precision, size: Size) -> list[Work]:
    """All usual contests of a subject; the first one of every subject that suits the model, if none is named."""
    if subject is not None:
        return _of(subject, model, precision, size)
    suiting = [one for one in SUITS if model is None or (model in SUITS[one] and one != "attention")]
    return [_of(one, model, precision, size)[0] for one in suiting]


def _of(subject: Subject, model: Model | None, precision: Precision, size: Size) -> list[Work]:
    chosen = SUITS[subject][0] if model is None else model
    if chosen not in SUITS[subject]:
        raise InputError(f"{subject} is not measured with {chosen}; take one of {', '.join(SUITS[subject])}")
    if subject in WHOLE:
        precision = "fp32"
    return [
        Work(subject, chosen, precision, batch, reads, writes, ragged, size.threads)
        for batch, reads, writes, ragged in _sizes(subject, chosen, size)
    ]


def _sizes(subject: Subject, model: Model, size: Size) -> list[tuple[int, int, int, bool]]:
    """Rows, tokens that are read, tokens that are written, and whether rows have different lengths."""
    tokens = size.tokens
    match subject:
        case "decode":
            batches = (size.batch,) if size.batch else (1, 8, 32)
            return [(batch, 32, tokens or 128, False) for batch in batches]
        case "encode":
            if size.batch is None and tokens is None:
                return [(8, 128, 0, False), (32, 256, 0, True)]
            return [(size.batch or 8, tokens or 256, 0, tokens is None)]
        case "translate":
            return [(size.batch or 32, 20, tokens or 30, False)]
        case "train":
            rows, length = (64, 32) if model == "transformer" else (16, 256)
            return [(size.batch or rows, tokens or length, 0, False)]
        case "prefill":
            return [(size.batch or 1, tokens or 512, 0, False)]
        case "attention":
            return [(size.batch or 1, tokens or 4096, 0, False)]
        case "load":
            return [(1, 16, 0, False)]
