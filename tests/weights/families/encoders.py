"""Encoders with heads beside `transformers`: what one is fed, what it says, and that heed says the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import transformers
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

from heed.weights import Folder, Opened, open_
from heed.weights.replays.shapes import outputs
from tests.weights.live import close, ids, returns, saved

LENGTH, VOCABULARY = 9, 31
EXACT = 1e-10
ROUNDED = 3e-6  # where transformers computes a constant, a softmax or a loss in float32, whatever the model is in
HEADS = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")

sizes = st.fixed_dictionaries(
    {
        "num_attention_heads": st.sampled_from([1, 2, 3]),
        "num_hidden_layers": st.integers(1, 3),
        "intermediate_size": st.sampled_from([7, 16]),
        "hidden_act": st.sampled_from(["gelu", "gelu_new", "relu", "silu", "tanh"]),
        "layer_norm_eps": st.sampled_from([1e-12, 1e-5, 1e-2]),
        "type_vocab_size": st.integers(1, 3),
        "tie_word_embeddings": st.booleans(),
        "num_labels": st.integers(1, 4),
    }
)


def shape(drawn: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Options that every family takes."""
    given = {"vocab_size": VOCABULARY, "hidden_size": 12, "max_position_embeddings": 15, "pad_token_id": 0}
    return given | drawn | more


def build(name: str, options: dict[str, Any]) -> Any:
    """A model of `transformers`, by the name of its class. Two scores tell where an answer begins and ends."""
    kind: Any = getattr(transformers, name)
    two = "QuestionAnswering" in name or name == "AlbertForPreTraining"
    return kind(kind.config_class(**options | ({"num_labels": 2} if two else {})))


def moved(model: Any) -> bool:
    """Whether heed moves real tokens to the front: then it does not give what the reference gives at padding."""
    return "Deberta" in type(model).__name__


def inputs_for(model: Any, seed: int = 0, mask: Tensor | None = None) -> dict[str, Tensor]:
    """Rows with whatever fields and labels this model knows; unless a mask is given two, one of them padded."""
    config, name, draw = model.config, type(model).__name__, torch.Generator().manual_seed(seed)
    if mask is None:
        mask = torch.ones(2, LENGTH, dtype=torch.long)
        mask[1, LENGTH - 3 :] = 0
        if moved(model) and "QuestionAnswering" in name:  # their loss counts the scores of padding
            mask[:] = 1
    rows = len(mask)
    given = {"input_ids": ids(rows, LENGTH, VOCABULARY, seed).masked_fill(mask == 0, config.pad_token_id or 0)}
    given["attention_mask"] = mask
    if getattr(config, "type_vocab_size", 0) > 0:
        given["token_type_ids"] = torch.randint(config.type_vocab_size, (rows, LENGTH), generator=draw)
    if "LayoutLM" in name:
        corner, size = (torch.randint(5, (rows, LENGTH, 2), generator=draw) for _ in range(2))
        given["bbox"] = torch.cat((corner, corner + size), -1)
    return given | _labels(name, config.num_labels, mask if moved(model) else torch.ones_like(mask), draw)


def _labels(name: str, labels: int, mask: Tensor, draw: torch.Generator) -> dict[str, Tensor]:
    """Labels where the mask is 1, but for one column, and for every text."""
    rows = torch.arange(len(mask))

    def each(many: int) -> Tensor:
        drawn = torch.randint(many, mask.shape, generator=draw).masked_fill(mask == 0, -100)
        drawn[:, 4] = -100
        return drawn

    pair = (rows + 1) % 2
    if name == "ElectraForPreTraining":
        return {"labels": each(2).clamp(min=0)}
    if "PreTraining" in name:
        return {"labels": each(VOCABULARY), "sentence_order_label" if "Albert" in name else "next_sentence_label": pair}
    if "Masked" in name:
        return {"labels": each(VOCABULARY)}
    if "TokenClassification" in name:
        return {"labels": each(labels)}
    if "SequenceClassification" in name and labels == 1:
        return {"labels": torch.rand(len(mask), generator=draw, dtype=torch.float64)}
    if "NextSentence" in name or "SequenceClassification" in name:
        return {"labels": pair}
    if "QuestionAnswering" in name:  # one place lies outside of the text: it does not count
        begin = (rows + 1).masked_fill(rows == 1, 40)
        return {"start_positions": begin, "end_positions": (rows + 3).masked_fill(rows == 1, LENGTH - 1)}
    return {}


def told(model: Any, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Everything that transformers says, under the names of a golden folder."""
    made: dict[str, Tensor] = {}
    for name, value in model(**inputs, output_hidden_states=True, output_attentions=True).items():
        made |= {f"{name}.{i}": one for i, one in enumerate(value)} if isinstance(value, tuple) else {name: value}
    return made


def record(folder: Path, inputs: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    """Make a golden folder of a checkpoint."""
    for name, tensors in {"inputs": inputs, "outputs": wanted}.items():
        save_file({key: one.contiguous().clone() for key, one in tensors.items()}, folder / f"{name}.safetensors")


def same(made: dict[str, Tensor], wanted: dict[str, Tensor], real: Tensor, tolerance: float) -> None:
    """Equal at every column that is real, which may be all of them."""
    assert made.keys() >= wanted.keys(), wanted.keys() - made.keys()
    for name, tensor in wanted.items():
        assert made[name].shape == tensor.shape, name
        bound = tolerance if tensor.dtype == torch.float64 else max(tolerance, ROUNDED)
        close(_of_tokens(name, made[name], real), _of_tokens(name, tensor, real), bound)


def _of_tokens(name: str, tensor: Tensor, real: Tensor) -> Tensor:
    tensor = tensor.transpose(1, 2) if "attentions" in name else tensor
    return tensor[real] if tensor.shape[:2] == real.shape else tensor


@torch.no_grad()
def agrees(model: Any, tolerance: float, change: Callable[[Any], None] | None = None) -> Opened:
    """Every output of a model with random weights; and the same model once heed has written it."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        theirs = saved(model, folder / "theirs")
        if change is not None:
            change(theirs)
            theirs.save_pretrained(folder / "theirs")
        theirs.set_attn_implementation("eager")
        inputs = inputs_for(theirs)
        wanted = told(theirs, inputs)
        record(folder / "theirs", inputs, wanted)
        golden = Folder.open(folder / "theirs")
        opened = open_(golden.checkpoint)
        mask = inputs["attention_mask"].bool()
        same(outputs(opened, golden), wanted, mask if moved(theirs) else torch.ones_like(mask), tolerance)
        again = returns(opened, folder / "ours", theirs)
        again.set_attn_implementation("eager")
        for name, tensor in told(again, inputs).items():
            assert torch.equal(tensor, wanted[name]), name
        return opened
