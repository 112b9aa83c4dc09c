"""What a checkpoint looks like with another head: the names that a family has for the head of a fine-tuned model.

A base is fine-tuned under a head of the form that its family knows (BERT: the first token, its pooler, a classifier),
so that what was learnt can be written in the family's layout, and other libraries ask it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ...core.config import Data
from ...parts.outputs.heads import HeadConfig, Pooled, Spans, Tagged
from ..families import kind_of
from ..families.base import Understood, understood
from ..formats.checkpoint import Checkpoint
from .derived import Promised

Shapes: TypeAlias = "dict[str, tuple[int, ...]]"

# What a model is for, as peft calls it, and how the class of transformers ends that is.
ENDINGS = {
    "SEQ_CLS": "ForSequenceClassification",
    "TOKEN_CLS": "ForTokenClassification",
    "QUESTION_ANS": "ForQuestionAnswering",
}
PROJECTED = ("projector", "classifier")  # layers of a class of a whole sound
CHANNELS = 256  # of the first, unless the config says it
TASKS: dict[type[HeadConfig], str] = {
    Pooled.Config: "SEQ_CLS",
    Tagged.Config: "TOKEN_CLS",
    Spans.Config: "QUESTION_ANS",
}


@dataclass(frozen=True)
class Asked:
    """How a family calls its backbone and the layers of its heads."""

    name: str  # of its classes
    stem: str  # what stands before the names of the backbone
    texts: tuple[str, ...] = ("classifier.dense", "classifier.out_proj")  # of a class per text; the last makes logits
    tags: str | None = "classifier"  # of a class per token
    spans: str | None = "qa_outputs"  # of an answer in a text
    projected: str | None = None  # the setting that says how many channels the first of `texts` makes
    frames: bool = False  # tags are labels of frames (CTC)
    biased: bool = True  # these layers add a bias
    ending: str | None = None  # of its class for the first of these questions, if it reads no texts


def _scored(name: str, stem: str = "model.") -> Asked:
    """A decoder, which asks its last token."""
    return Asked(name, stem, ("score",), tags=None, spans=None, biased=False)


def _heard(name: str, stem: str) -> Asked:
    """An encoder of sounds, whose frames are labelled with letters, or projected and pooled."""
    return Asked(name, stem, PROJECTED, tags="lm_head", spans=None, projected="classifier_proj_size", frames=True)


def _sees(name: str, stem: str) -> Asked:
    """A model that looks at images."""
    return Asked(name, stem, ("classifier",), tags=None, spans=None, ending="ForImageClassification")


ASKED: dict[str, Asked] = {
    "albert": Asked("Albert", "albert.", ("albert.pooler", "classifier")),
    "bert": Asked("Bert", "bert.", ("bert.pooler.dense", "classifier")),
    "camembert": Asked("Camembert", "roberta."),
    "deberta-v2": Asked("DebertaV2", "deberta.", ("pooler.dense", "classifier")),
    "distilbert": Asked("DistilBert", "distilbert.", ("pre_classifier", "classifier")),
    "electra": Asked("Electra", "electra."),
    "fnet": Asked("FNet", "fnet.", ("fnet.pooler.dense", "classifier")),
    "funnel": Asked("Funnel", "funnel.", ()),  # its classifier of texts has fewer layers than its base
    "gpt2": _scored("GPT2", "transformer."),
    "llama": _scored("Llama"),
    "mistral": _scored("Mistral"),
    "mpnet": Asked("MPNet", "mpnet."),
    "nystromformer": Asked("Nystromformer", "nystromformer."),
    "qwen2": _scored("Qwen2"),
    "qwen3": _scored("Qwen3"),
    "roberta": Asked("Roberta", "roberta."),
    "roformer": Asked("RoFormer", "roformer."),
    "wav2vec2": _heard("Wav2Vec2", "wav2vec2."),
    "hubert": _heard("Hubert", "hubert."),
    "xlm-roberta": Asked("XLMRoberta", "roberta."),
    "swin": _sees("Swin", "swin."),
    "vit": _sees("ViT", "vit."),
    "yoso": Asked("Yoso", "yoso."),
}


def asked_by(base: Checkpoint, head: HeadConfig, labels: Sequence[str] = ()) -> Checkpoint | None:
    """The base as its family would hold it with this head alone, by names and shapes; None: it has no such head."""
    known = ASKED.get(str(base.config.get("model_type")))
    layers = None if known is None else _layers(known, head)
    if known is None or layers is None:
        return None
    if known.projected is not None and known.texts[0] in layers:
        layers[known.texts[0]] = int(base.config.get(known.projected) or CHANNELS)
    shapes = _backbone(base, known)
    for layer, rows in layers.items():
        shapes |= {f"{layer}.weight": (rows, 1)} | ({f"{layer}.bias": (rows,)} if known.biased else {})
    ending = known.ending or ENDINGS[TASKS[type(head)]]
    config = {**base.config, "architectures": [f"{known.name}{ending}"], **_labelled(labels)}
    if known.frames and isinstance(head, Tagged.Config):
        config |= {"architectures": [f"{known.name}ForCTC"], "vocab_size": head.labels}
    return Checkpoint(base.place, config, Promised(shapes))


def understood_with(base: Checkpoint, head: HeadConfig, labels: Sequence[str] = ()) -> Understood | None:
    """The same in heed's words."""
    dressed = asked_by(base, head, labels)
    return None if dressed is None else understood(kind_of(dressed), dressed)


def named_after(config: Data, ending: str) -> str:
    """The class of transformers that a model of this family has with such a head."""
    kind = str(config.get("model_type"))
    if kind in ASKED:
        return f"{ASKED[kind].name}{ending}"
    first = next(iter(config.get("architectures") or ()), kind)
    return f"{str(first).partition('For')[0].removesuffix('Model').removesuffix('LMHead')}{ending}"


def _layers(known: Asked, head: HeadConfig) -> dict[str, int] | None:
    """The layers of a head, and how many rows each has, as far as it matters."""
    match head:
        case Pooled.Config(labels=int() as labels) if known.texts:
            return {**dict.fromkeys(known.texts, 1), known.texts[-1]: labels}
        case Tagged.Config(labels=int() as labels) if known.tags is not None:
            return {known.tags: labels}
        case Spans.Config() if known.spans is not None:
            return {known.spans: 2}
    return None


def _backbone(base: Checkpoint, known: Asked) -> Shapes:
    """Tensors of the base but for its heads, all of them behind the stem."""
    stemmed = any(name.startswith(known.stem) for name in base.tensors)
    poolers = (f"{known.stem}pooler.", *(f"{layer}." for layer in known.texts))
    found: Shapes = {}
    for name in base.tensors:
        full = name if stemmed else f"{known.stem}{name}"
        if full.startswith(known.stem) and not full.startswith(poolers):
            found[full] = tuple(base.tensors.like(name).shape)
    return found


def _labelled(labels: Iterable[str]) -> Data:
    names = list(labels)
    if not names:
        return {}
    return {
        "num_labels": len(names),
        "id2label": {str(number): name for number, name in enumerate(names)},
        "label2id": {name: number for number, name in enumerate(names)},
    }
