"""XLNet beside its reference library: both streams, any masks, memories, every head, and the way back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import one_hot
from transformers import (
    XLNetConfig,
    XLNetForMultipleChoice,
    XLNetForQuestionAnswering,
    XLNetForQuestionAnsweringSimple,
    XLNetForSequenceClassification,
    XLNetForTokenClassification,
    XLNetLMHeadModel,
    XLNetModel,
)

import heed
from heed import weights
from heed.core.contract import Where
from heed.core.errors import WeightsError
from heed.mixers import TwoStream
from heed.models import XLNet, XLNetEncoder
from heed.parts.masks import Causal, Mask, Whole, Window
from heed.pipelines import GenerationConfig
from tests.pipelines.small import WORDS, worded
from tests.weights.families.inuse import LONG, framed
from tests.weights.live import close, ids, returns, saved

SMALL: dict[str, Any] = {"vocab_size": 31, "d_model": 12, "n_layer": 2, "n_head": 3, "d_inner": 20}
NEAR = 1e-6  # the reference takes its sines in float32
ROWS, TOKENS = 2, 7


@pytest.fixture(autouse=True)
def _double(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference computes distances in float32 and its two streams do not cast them."""
    real = XLNetModel.relative_positional_encoding

    def encoding(self: Any, *given: Any, **named: Any) -> Tensor:
        return real(self, *given, **named).to(self.dtype)

    monkeypatch.setattr(XLNetModel, "relative_positional_encoding", encoding)


def model_of(kind: type, folder: Path, **changes: Any) -> Any:
    """In float64. The reference loads half of its weights as float32, so they are rounded to that and saved again."""
    model = saved(kind(XLNetConfig(**SMALL | changes)), folder).double()
    model.save_pretrained(folder)
    return model


def permutation(seed: int = 0, rows: int = ROWS, tokens: int = TOKENS) -> Tensor:
    """The rank of every token in a random order."""
    dice = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randperm(tokens, generator=dice) for _ in range(rows)])


def hides(rank: Tensor) -> Tensor:
    """1 where a token may not look: at what is not revealed before it."""
    return (rank[:, None, :] >= rank[:, :, None]).double()


def recorded(model: Any, folder: Path, inputs: dict[str, Tensor], calls: int = 1) -> dict[str, Tensor]:
    """What the reference gives, written beside its checkpoint; several calls go on with the memory of those before."""
    made: dict[str, Tensor] = {}
    memory = [inputs[f"mems.{layer}"] for layer in range(2)] if "mems.0" in inputs else None
    for call in range(calls):
        end = f".{call}" if calls > 1 else ""
        named = {name.removesuffix(end): tensor for name, tensor in inputs.items() if name.endswith(end)}
        given = {name: tensor for name, tensor in named.items() if not name.startswith("mems")}
        out = model(**given, mems=memory, use_mems=True, output_attentions=True, output_hidden_states=True)
        memory = out.mems
        for name, value in out.items():
            for path, tensor in flat(value):
                made[f"{name}{end}{path}"] = tensor
    save_file({name: tensor.contiguous() for name, tensor in inputs.items()}, folder / "inputs.safetensors")
    save_file({name: tensor.clone() for name, tensor in made.items()}, folder / "outputs.safetensors")
    return made


def flat(value: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield "", value.contiguous()
    else:
        for index, part in enumerate(value):
            yield from ((f".{index}{path}", tensor) for path, tensor in flat(part))


def replays(folder: Path, wanted: dict[str, Tensor]) -> None:
    made = weights.replay(folder)
    assert made.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert made[name].shape == tensor.shape, name
        close(made[name], tensor, NEAR)


def changed(folder: Path, **settings: Any) -> None:
    """A config that the library would refuse to write."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


@torch.no_grad()
def test_a_writer_predicts_in_any_order_and_writes(tmp_path: Path) -> None:
    model = model_of(XLNetLMHeadModel, tmp_path / "theirs", clamp_len=4)
    opened = weights.load(tmp_path / "theirs")
    ours, tokens, rank = opened.model, ids(ROWS, TOKENS, 31), permutation()
    assert isinstance(ours, XLNet)
    kinds = torch.tensor([[0, 0, 0, 1, 1, 1, 2]] * ROWS)
    first = rank.argmin(1)  # of which nothing is known: the reference gives the mean of all, heed gives nothing
    everywhere = torch.eye(TOKENS, dtype=torch.float64).expand(ROWS, -1, -1)
    theirs = model(tokens, perm_mask=hides(rank), target_mapping=everywhere, token_type_ids=kinds).logits
    where = Where(rank, torch.arange(TOKENS).expand(ROWS, -1)).give(segment=kinds)
    made = ours.predict(tokens, where, where)
    known = torch.arange(TOKENS) != first[:, None]
    close(made[known], theirs[known], NEAR)
    assert not torch.allclose(made[~known], theirs[~known], rtol=0, atol=1e-3)

    steps = Where.run(ROWS, TOKENS)  # in the order of reading: cut, and as predictions of the next token
    asked = model(tokens, perm_mask=hides(steps.order), target_mapping=everywhere).logits
    state: Any = ours.start(ROWS)
    begun, state = ours(tokens[:, :3], Where.run(ROWS, 3), state)
    rest, _ = ours(tokens[:, 3:], Where.run(ROWS, 4, start=3), state)
    close(torch.cat((begun, rest), 1)[:, :-1], asked[:, 1:], NEAR)

    again = returns(opened, tmp_path / "ours", model).double()
    assert torch.equal(again(tokens).logits, model(tokens).logits)


HEADS = {
    "XLNetModel": XLNetModel,
    "XLNetForSequenceClassification": XLNetForSequenceClassification,
    "XLNetForTokenClassification": XLNetForTokenClassification,
    "XLNetForQuestionAnsweringSimple": XLNetForQuestionAnsweringSimple,
    "XLNetForMultipleChoice": XLNetForMultipleChoice,
}


@pytest.mark.parametrize("name", HEADS)
@torch.no_grad()
def test_a_reader_looks_both_ways_and_answers(name: str, tmp_path: Path) -> None:
    """Padded on the left there, as its tokenizer does, and at the row's end here."""
    model = model_of(HEADS[name], tmp_path / "theirs", num_labels=2)
    opened = weights.load(tmp_path / "theirs")
    ours, tokens, kinds = opened.model, ids(ROWS, TOKENS, 31), torch.tensor([[0, 0, 0, 1, 1, 1, 2]] * ROWS)
    assert isinstance(ours, XLNetEncoder)
    shown = torch.ones_like(tokens)
    shown[1, :3] = 0
    given = {"input_ids": tokens, "attention_mask": shown, "token_type_ids": kinds}
    out = model(**{key: value[:, None] if "Multiple" in name else value for key, value in given.items()})
    fields = torch.stack((tokens, kinds), -1)
    fields[1] = fields[1].roll(-3, 0)
    seen = ours.encode(fields, Where.ragged([TOKENS, 4]))
    answer = next((head(seen.parts[0], seen) for head in ours.heads.values()), seen.parts[0])
    theirs = out.start_logits if "Question" in name else out[0]
    made = answer[..., 0] if "Question" in name else answer
    if made.shape[:2] == tokens.shape:  # one of each token
        close(made[0], theirs[0], NEAR)
        close(made[1, :4], theirs[1, 3:], NEAR)
    else:
        close(made, theirs, NEAR)
    again = returns(opened, tmp_path / "ours", model).double()
    assert torch.equal(
        again(tokens[:, None] if "Multiple" in name else tokens)[0],
        model(tokens[:, None] if "Multiple" in name else tokens)[0],
    )


@torch.no_grad()
def test_in_use(tmp_path: Path) -> None:
    """Texts of several lengths in one batch are classified, and a text is gone on with."""
    labelled = tmp_path / "classes"
    model = model_of(XLNetForSequenceClassification, labelled, vocab_size=len(WORDS), num_labels=3)
    worded(labelled)
    texts = [LONG, "the dog ran"]
    for text, guesses in zip(texts, heed.load(labelled).classify(texts), strict=True):
        p = model(framed(text)).logits[0].softmax(-1).sort(descending=True).values
        assert [guess.p for guess in guesses] == pytest.approx(p.tolist(), rel=10 * NEAR)
    folder = tmp_path / "words"
    model_of(XLNetLMHeadModel, folder, vocab_size=len(WORDS))
    worded(folder)
    assert heed.load(folder).generate("the cat", GenerationConfig(max_new_tokens=3)) != ""


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "uni": {"attn_type": "uni"},
    "same length": {"attn_type": "uni", "same_length": True},
    "clamped": {"clamp_len": 3},
    "both directions": {"bi_data": True, "clamp_len": 5},
    "short memory": {"mem_len": 3, "reuse_len": 2},
    "all memory": {"mem_len": 0, "ff_activation": "silu"},
    "untied": {"tie_word_embeddings": False, "layer_norm_eps": 1e-5, "ff_activation": "relu"},
}


@pytest.mark.parametrize("name", OPTIONS)
@torch.no_grad()
def test_segments_with_memory_are_replayed(name: str, tmp_path: Path) -> None:
    """Three segments of several lengths, the second one with token types and two streams."""
    model = model_of(XLNetLMHeadModel, tmp_path, **OPTIONS[name])
    inputs = {f"input_ids.{call}": ids(ROWS, length, 31, call) for call, length in enumerate((5, TOKENS, 2))}
    inputs["token_type_ids.1"] = ids(ROWS, TOKENS, 31) % 3
    inputs["target_mapping.1"] = one_hot(permutation()[:, :4], TOKENS).double()
    inputs["labels.2"] = ids(ROWS, 2, 31, 9)
    replays(tmp_path, recorded(model, tmp_path, inputs, calls=3))


def masks() -> dict[str, dict[str, Tensor]]:
    dice = torch.Generator().manual_seed(5)
    left, holes = torch.ones(ROWS, TOKENS, dtype=torch.long), torch.randint(2, (ROWS, TOKENS), generator=dice)
    left[1, :3] = 0
    anything = torch.randint(2, (ROWS, TOKENS, TOKENS), generator=dice).double()
    mixed = torch.randn(ROWS, 3, TOKENS, generator=dice, dtype=torch.float64)
    one = {"target_mapping": one_hot(permutation(1)[:, :4], TOKENS).double(), "labels": ids(ROWS, 4, 31, 3)}
    twice = {"target_mapping": one_hot(torch.tensor([[2, 2, 5], [0, 6, 0]]), TOKENS).double()}
    return {
        "left padding": {"attention_mask": left},
        "holes": {"input_mask": 1.0 - holes.double(), **one},
        "a permutation": {"perm_mask": hides(permutation()), **one},
        "no permutation": {"perm_mask": anything, **one},
        "padding and permutation": {"attention_mask": left, "perm_mask": hides(permutation(2)), **twice},
        "targets everywhere at once": {"perm_mask": anything, "target_mapping": mixed},
        "memory": {f"mems.{layer}": torch.randn(4, ROWS, 12, generator=dice).double() for layer in range(2)} | one,
        "nothing hidden": twice,
    }


@pytest.mark.parametrize("kind", [XLNetLMHeadModel, XLNetModel], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", masks())
@torch.no_grad()
def test_any_mask_is_replayed(name: str, kind: type, tmp_path: Path) -> None:
    """Of whatever origin; a place that sees nothing takes the mean of all, as it does there."""
    model = model_of(kind, tmp_path)
    inputs = {"input_ids": ids(ROWS, TOKENS, 31), "token_type_ids": ids(ROWS, TOKENS, 31, 1) % 2, **masks()[name]}
    inputs = {key: value for key, value in inputs.items() if key != "labels" or kind is XLNetLMHeadModel}
    replays(tmp_path, recorded(model, tmp_path, inputs))


SUMMARIES: dict[str, dict[str, Any]] = {
    "last": {},
    "first": {"summary_type": "first", "summary_activation": "relu"},
    "mean": {"summary_type": "mean", "summary_activation": ""},
    "index": {"summary_type": "cls_index", "summary_use_proj": False, "summary_activation": "", "num_labels": 1},
    "several": {"problem_type": "multi_label_classification"},
}


@pytest.mark.parametrize("name", SUMMARIES)
@torch.no_grad()
def test_summaries_are_replayed(name: str, tmp_path: Path) -> None:
    settings = {"num_labels": 3, **SUMMARIES[name]}
    model = model_of(XLNetForSequenceClassification, tmp_path, **settings)
    shown = torch.ones(ROWS, TOKENS, dtype=torch.long)
    shown[0, 4:] = 0  # padded on the right: the last column is padding, and is what is asked
    labels = {"index": torch.randn(ROWS).double(), "several": torch.tensor([[1.0, 0, 1], [0, 0, 1]]).double()}
    given = {"input_ids": ids(ROWS, TOKENS, 31), "attention_mask": shown}
    replays(tmp_path, recorded(model, tmp_path, {**given, "labels": labels.get(name, torch.tensor([0, 2]))}))


@torch.no_grad()
def test_tags_spans_and_choices_are_replayed(tmp_path: Path) -> None:
    tokens = ids(ROWS, TOKENS, 31)
    ends = {"start_positions": torch.tensor([0, 3]), "end_positions": torch.tensor([2, TOKENS + 4])}
    cases: tuple[tuple[type, dict[str, Tensor]], ...] = (
        (XLNetForTokenClassification, {"input_ids": tokens, "labels": tokens % 2}),
        (XLNetForQuestionAnsweringSimple, {"input_ids": tokens, **ends}),
        (XLNetForMultipleChoice, {"input_ids": ids(6, TOKENS, 31).view(2, 3, TOKENS), "labels": torch.tensor([2, 0])}),
    )
    for number, (kind, inputs) in enumerate(cases):
        folder = tmp_path / str(number)
        replays(folder, recorded(model_of(kind, folder), folder, inputs))


@pytest.mark.parametrize("attention", ["bi", "uni"])
@torch.no_grad()
def test_a_continuation_is_replayed(attention: str, tmp_path: Path) -> None:
    """As the library itself writes without memory: in float32, of which it makes the places that it asks at."""
    model = model_of(XLNetLMHeadModel, tmp_path, attn_type=attention).float()
    tokens, steps = ids(1, 4, 31), 5
    written = model.generate(
        tokens, max_new_tokens=steps, do_sample=False, use_mems=False, eos_token_id=None, pad_token_id=0,
        output_logits=True, return_dict_in_generate=True,
    )  # fmt: skip
    save_file({"input_ids": tokens}, tmp_path / "inputs.safetensors")
    made = {"sequences": written.sequences, "step_logits": torch.stack(written.logits, 1).double()}
    save_file(made, tmp_path / "outputs.safetensors")
    replayed = weights.replay(tmp_path)
    assert torch.equal(replayed["sequences"], made["sequences"])
    close(replayed["step_logits"], made["step_logits"], 10 * NEAR)


def test_who_sees_whom_by_the_config(tmp_path: Path) -> None:
    cases: tuple[tuple[type, dict[str, Any], Mask], ...] = (
        (XLNetLMHeadModel, {}, Causal()),
        (XLNetModel, {}, Whole()),
        (XLNetModel, {"attn_type": "uni"}, Causal()),
        (XLNetLMHeadModel, {"attn_type": "uni", "same_length": True, "mem_len": 5}, Window(back=5)),
        (XLNetLMHeadModel, {"attn_type": "uni", "same_length": True, "mem_len": None}, Causal()),
    )
    for number, (kind, settings, mask) in enumerate(cases):
        model_of(kind, tmp_path / str(number), **settings)
        model = weights.load(tmp_path / str(number)).model
        assert isinstance(model, XLNet | XLNetEncoder)
        mixers = [block.mixer for block in model.stack.layers]
        assert [mixer.mask for mixer in mixers if isinstance(mixer, TwoStream)] == [mask] * 2


def test_what_heed_cannot_is_refused(tmp_path: Path) -> None:
    model_of(XLNetForQuestionAnswering, tmp_path / "beams")
    with pytest.raises(WeightsError, match="searches over spans.*XLNetForQuestionAnsweringSimple"):
        weights.load(tmp_path / "beams")
    folder = tmp_path / "summary"
    model_of(XLNetForSequenceClassification, folder, summary_use_proj=False)
    with pytest.raises(WeightsError, match="summary_activation tanh without summary_use_proj"):
        weights.load(folder)
    changed(folder, summary_activation="", summary_type="attn")
    with pytest.raises(WeightsError, match="summary_type is 'attn'; heed knows last, first, mean"):
        weights.load(folder)
    changed(folder, summary_type="last", d_head=5)
    with pytest.raises(WeightsError, match="d_head is 5; 3 heads must be as wide as d_model 12"):
        weights.load(folder)
    changed(folder, d_head=None, n_head=4)
    with pytest.raises(WeightsError, match=r"rel_attn.q has the shape \[12, 3, 4\], needed is \[12, 4, 3\]"):
        weights.load(folder)
    changed(folder, attn_type="sideways")
    with pytest.raises(WeightsError, match="attn_type"):
        weights.load(folder)


BAD: dict[str, tuple[dict[str, Tensor], str]] = {
    "two masks": (dict.fromkeys(("attention_mask", "input_mask"), torch.ones(1, 3)), "one of them says it all"),
    "shape": ({"perm_mask": torch.ones(1, 3)}, r"perm_mask has the shape \[1, 3\]; needed is \[1, 3, 3\]"),
    "mapping": ({"target_mapping": torch.ones(1, 2, 4)}, r"needed is \[1, 2, 3\]"),
    "labels": ({"labels": torch.ones(1, 4, dtype=torch.long)}, r"needed is the number of a class for each of \[1, 3\]"),
    "memory": (
        {"mems.0": torch.ones(1, 1, 12), "mems.1": torch.ones(2, 1, 12)},
        r"needed is \[tokens, 1, 12\] of each",
    ),
    "memory of other rows": ({f"mems.{n}": torch.ones(2, 3, 12) for n in range(2)}, r"needed is \[tokens, 1, 12\]"),
    "half a memory": ({"mems.0": torch.ones(1, 1, 12)}, "has no mems.1"),
    "embeddings": ({"inputs_embeds": torch.ones(1, 3, 12)}, "which heed does not feed"),
}


@pytest.mark.parametrize("name", BAD)
def test_inputs_that_do_not_fit(name: str, tmp_path: Path) -> None:
    inputs, message = BAD[name]
    model_of(XLNetLMHeadModel, tmp_path)
    save_file(
        {"input_ids": ids(1, 3, 31), **{key: value.clone() for key, value in inputs.items()}},
        tmp_path / "inputs.safetensors",
    )
    with pytest.raises(WeightsError, match=message):
        weights.replay(tmp_path)
