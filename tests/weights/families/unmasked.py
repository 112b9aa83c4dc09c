"""Encoders whose references mix padding in, beside `transformers`: every output, any mask, and the way back."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import transformers
from hypothesis import strategies as st
from torch import Tensor

from heed.weights import load, replay
from tests.weights.families.encoders import EXACT, ROUNDED, record, told
from tests.weights.live import close, ids, returns, saved

VOCABULARY = 31
SIZES = {
    "num_hidden_layers": st.integers(1, 2),
    "intermediate_size": st.sampled_from([7, 16]),
    "hidden_act": st.sampled_from(["gelu", "gelu_new", "relu", "silu"]),
    "layer_norm_eps": st.sampled_from([1e-12, 1e-5, 1e-2]),
    "type_vocab_size": st.integers(1, 3),
    "tie_word_embeddings": st.booleans(),
    "num_labels": st.integers(1, 4),
    "pad_token_id": st.integers(0, 1),
}
HEADS = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")


def build(name: str, options: dict[str, Any]) -> Any:
    """A model of `transformers`, by the name of its class."""
    kind: Any = getattr(transformers, name)
    given = {"vocab_size": VOCABULARY, "hidden_size": 12, "max_position_embeddings": 15} | options
    return kind(kind.config_class(**given | ({"num_labels": 2} if "QuestionAnswering" in name else {})))


def masks(tokens: int) -> dict[str, Tensor | None]:
    """None, one that shows everything, and padding at either side of a row."""
    left, right = torch.ones(2, 2, tokens, dtype=torch.long)
    right[1, tokens - tokens // 3 :] = 0
    left[0, : tokens // 2] = 0
    return {"none": None, "all": torch.ones(2, tokens, dtype=torch.long), "right": right, "left": left}


def inputs_for(model: Any, tokens: int, mask: Tensor | None) -> dict[str, Tensor]:
    """Two rows, with the labels that this model knows."""
    config, name, draw = model.config, type(model).__name__, torch.Generator().manual_seed(tokens)
    given = {
        "input_ids": ids(2, tokens, VOCABULARY, tokens),
        "token_type_ids": torch.randint(config.type_vocab_size, (2, tokens), generator=draw),
    } | ({} if mask is None else {"attention_mask": mask})
    if "MaskedLM" in name or "TokenClassification" in name or "PreTraining" in name:
        many = config.num_labels if "Token" in name else VOCABULARY
        given["labels"] = torch.randint(many, (2, tokens), generator=draw)
        given["labels"][:, : tokens // 3] = -100  # not all of them: the mean of nothing is no number
    if "PreTraining" in name:
        given["next_sentence_label"] = torch.tensor([1, 0])
    if "NextSentence" in name:
        given["labels"] = torch.tensor([1, 0])
    if "SequenceClassification" in name:
        several = config.num_labels > 1
        given["labels"] = torch.tensor([1, 0]) if several else torch.tensor([0.3, -1.2], dtype=torch.float64)
    if "QuestionAnswering" in name:
        given |= {"start_positions": torch.tensor([0, 40]), "end_positions": torch.tensor([tokens - 1, 1])}
    return given


@torch.no_grad()
def agrees(model: Any, tokens: int, mask: Tensor | None, *without: str) -> None:
    """What transformers gives, but for outputs of other meaning, is what heed gives at every column."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        theirs = saved(model, folder / "theirs")
        inputs = inputs_for(theirs, tokens, mask)
        wanted = {name: tensor for name, tensor in told(theirs, inputs).items() if not name.startswith(without)}
        assert len(wanted) > 2
        record(folder / "theirs", inputs, wanted)
        made = replay(folder / "theirs")
        assert made.keys() == wanted.keys()
        for name, tensor in wanted.items():
            close(made[name], tensor, EXACT if tensor.dtype == torch.float64 else ROUNDED)
        again = returns(load(folder / "theirs"), folder / "ours", theirs)
        for name, tensor in told(again, inputs).items():
            assert name.startswith(without) or torch.equal(tensor, wanted[name]), name
