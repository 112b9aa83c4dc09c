"""transformers of Hugging Face: float32, with its own attention or torch's, whichever is quicker."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ..base import Contestant, Done, Prepared, Round, nearest
from ..rounds import batches, first_token, training
from ..shapes import PAIRS
from ..work import BEAMS, Work

if TYPE_CHECKING:
    from torch import Tensor

LOAD = """
import torch
from transformers import {kind}
model = {kind}.from_pretrained(path).eval()
with torch.no_grad():
    int(model(torch.arange(8, 24)[None], logits_to_keep=1).logits[0, -1].argmax())
"""
ATTENTIONS = ("sdpa", "eager")


class Transformers(Contestant):
    """Defaults but for what is said here: the class itself, evaluation, a dynamic cache, no early end."""

    name: ClassVar[str] = "transformers"
    package: ClassVar[str] = "transformers"
    distribution: ClassVar[str] = "transformers"

    def precision(self, work: Work) -> str | None:
        if work.model not in {"gpt2", "llama", "bert", *PAIRS, "gpt-50k"}:
            return None
        return nearest(work, {"fp32": "fp32"}, ("decode", "prefill", "encode", "translate", "train", "load"))

    def prepare(self, work: Work) -> Prepared:
        if work.subject == "load":
            kind = work.config["architectures"][0]
            return Prepared({"": first_token(sys.executable, work.folder, LOAD.format(kind=kind))})
        if work.subject == "train":
            return training(work, trained(work))
        found: dict[str, Round] = {}
        read = 0
        for attention in ATTENTIONS:
            model = loaded(work, attention)
            read = sum(weight.nbytes for weight in model.parameters()) - work.table(4)
            for name, call in SUBJECTS[work.subject](work, model).items():
                found[f"{attention} {name}".strip()] = call
        return Prepared(found, read)


def loaded(work: Work, attention: str) -> Any:
    """The model of the folder."""
    import transformers

    kind: Any = getattr(transformers, work.config["architectures"][0])
    return kind.from_pretrained(work.folder, attn_implementation=attention).eval()


def trained(work: Work) -> Callable[[], tuple[Any, Callable[[], Tensor]]]:
    """A model and its loss, as `training` takes them."""

    def made() -> tuple[Any, Callable[[], Tensor]]:
        import torch
        import torch.nn.functional as F
        import transformers

        rows = torch.tensor(work.rows(more=1))
        before, after = rows[:, :-1], rows[:, 1:].reshape(-1)
        data = work.config
        if work.model in PAIRS:
            model = transformers.MarianMTModel(transformers.MarianConfig(**data)).train()

            def pairs() -> Tensor:
                logits = model(input_ids=before, decoder_input_ids=before, use_cache=False).logits
                return F.cross_entropy(logits.flatten(0, 1), after)

            return model, pairs
        kind: Any = transformers.GPT2LMHeadModel
        decoder = kind(transformers.GPT2Config(**data)).train()

        def loss() -> Tensor:
            return F.cross_entropy(decoder(before, use_cache=False).logits.flatten(0, 1), after)

        return decoder, loss

    return made


def _decode(work: Work, model: Any) -> dict[str, Round]:
    import torch

    ids = torch.tensor(work.rows())
    given = {"attention_mask": torch.ones_like(ids), "do_sample": False, "pad_token_id": 0, "eos_token_id": None}

    def written() -> Done:
        with torch.no_grad():
            made = model.generate(ids, max_new_tokens=work.writes, min_new_tokens=work.writes, **given)
        new = made[:, ids.shape[1] :]
        return Done(new.numel(), tuple(new[0].tolist()))

    return {"": written}


def _prefill(work: Work, model: Any) -> dict[str, Round]:
    import torch

    ids = torch.tensor(work.rows())

    def read() -> Done:
        with torch.no_grad():
            logits = model(ids, use_cache=True, logits_to_keep=1).logits
        return Done(ids.numel(), (int(logits[0, -1].argmax()),))

    return {"": read}


def _encode(work: Work, model: Any) -> dict[str, Round]:
    import torch

    def way(size: int) -> Round:
        padded = [(torch.tensor(ids), torch.tensor(mask)) for ids, mask in batches(work.rows(), size)]

        def encoded() -> Done:
            count = 0
            with torch.no_grad():
                for ids, mask in padded:
                    given = {"attention_mask": mask} if not bool(mask.all()) else {}
                    stream = model(ids, **given).last_hidden_state
                    count += len((stream * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))
            return Done(count)

        return encoded

    return {f"batches of {size}": way(size) for size in sizes(work)}


def sizes(work: Work) -> Sequence[int]:
    """Ragged texts, sorted by length, are also tried in smaller batches, which are padded less."""
    return sorted({min(work.batch, size) for size in (4, 8, work.batch)}) if work.ragged else (work.batch,)


def _translate(work: Work, model: Any) -> dict[str, Round]:
    import torch

    ids = torch.tensor(work.rows())
    given = {"attention_mask": torch.ones_like(ids), "num_beams": BEAMS, "do_sample": False}

    def translated() -> Done:
        with torch.no_grad():
            made = model.generate(ids, max_new_tokens=work.writes, min_new_tokens=work.writes, **given)
        return Done(int((made.shape[1] - 1 == work.writes) * len(made)), tuple(made[0, 1:].tolist()))

    return {"": translated}


SUBJECTS: dict[str, Callable[[Work, Any], dict[str, Round]]] = {
    "decode": _decode,
    "prefill": _prefill,
    "encode": _encode,
    "translate": _translate,
}
