"""RWKV, random ones, beside the reference library: the same logits, the same state, and back again.

The reference sums in float32 whatever the model is in: `SINGLE` is that. It shows a model all tokens of a row, padding
or not, and is wrong where several rows go on by one token each: there heed is compared with each row alone.
"""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
import transformers as reference
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from heed import weights
from heed.core.contract import Where
from heed.core.errors import WeightsError
from heed.models import Decoder
from heed.weights import replay
from heed.weights.replays.greedy import greedy
from heed.weights.replays.shapes.recurrent import _state
from tests.weights.live import close, ids, returns, saved
from tests.weights.support import GOLDEN, write

SINGLE = 5e-6
VOCABULARY, LENGTH, SHORT, STEPS = 41, 11, 7, 6
few = settings(max_examples=8, deadline=None, derandomize=True, phases=(Phase.generate,))
flags = st.booleans()


def config(**other: Any) -> Any:
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 12, "num_hidden_layers": 2, "rescale_every": 0}
    return reference.RwkvConfig(**{**sizes, **other})


@torch.no_grad()
def agrees(model: Any, folder: Path) -> None:
    """Scores whole, ragged and cut into calls; what is remembered; greedy tokens; and the way back."""
    model = saved(model, folder / "theirs")
    opened = weights.load(folder / "theirs")
    ours, tokens = opened.model, ids(2, LENGTH, VOCABULARY)
    assert isinstance(ours, Decoder)
    wanted = model(input_ids=tokens, use_cache=False).logits
    close(ours(tokens, Where.run(2, LENGTH))[0], wanted, SINGLE)
    ragged = ours(tokens, Where.ragged([LENGTH, SHORT]))[0]
    close(ragged[0], wanted[0], SINGLE)
    close(ragged[1, :SHORT], wanted[1, :SHORT], SINGLE)
    cut, begin, state = list[Tensor](), 0, ours.start(2)
    for end in (1, 4, 5, LENGTH):
        y, after = ours(tokens[:, begin:end], Where.run(2, end - begin, start=begin), state)
        assert after is not None
        cut.append(y)
        begin, state = end, after
    close(torch.cat(cut, 1), wanted, SINGLE)
    if model.config.attention_hidden_size == model.config.hidden_size:  # else the reference cannot hold its state
        _goes_on(model, ours, tokens, _state(state))
    again = returns(opened, folder / "ours", model)
    assert torch.equal(again(input_ids=tokens, use_cache=False).logits, wanted)


def _goes_on(model: Any, ours: Decoder, tokens: Tensor, state: list[Tensor]) -> None:
    theirs = model(input_ids=tokens, use_cache=True).state
    for mine, wanted in zip(state, theirs, strict=True):
        close(mine, wanted, SINGLE)
    written, logits = greedy(ours, tokens, Where.ragged([LENGTH, SHORT]), STEPS)
    asked = {"max_new_tokens": STEPS, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    sure = logits.sort(-1).values.diff(dim=-1)[..., -1].amin(1) > 10 * SINGLE * logits.abs().max()
    for row, length in enumerate((LENGTH, SHORT)):
        found = model.generate(input_ids=tokens[row : row + 1, :length], **asked)[0, length:]
        assert not sure[row] or torch.equal(written[row], found)


@pytest.mark.filterwarnings("ignore:.*attention_mask.*")
@few
@given(st.data())
def test_rwkv(data: st.DataObject) -> None:
    asked = config(
        hidden_size=data.draw(st.integers(2, 20)),
        num_hidden_layers=data.draw(st.integers(2, 5)),
        attention_hidden_size=data.draw(st.sampled_from([None, None, 5, 16])),
        intermediate_size=data.draw(st.sampled_from([None, 7, 30])),
        layer_norm_epsilon=data.draw(st.sampled_from([1e-5, 1e-6, 1e-2])),
        rescale_every=data.draw(st.sampled_from([0, 1, 2, 3, 6, -1])),
        tie_word_embeddings=data.draw(flags),
    )
    with TemporaryDirectory() as folder:
        agrees(reference.RwkvForCausalLM(asked), Path(folder))


@torch.no_grad()
def test_a_stream_that_is_halved_on_its_way(tmp_path: Path) -> None:
    """Norms of a large eps notice: what the reference does by changing weights, the wiring does by itself."""
    model = saved(
        reference.RwkvForCausalLM(config(num_hidden_layers=5, rescale_every=2, layer_norm_epsilon=0.5)), tmp_path
    )
    tokens = ids(2, LENGTH, VOCABULARY)
    opened = weights.load(tmp_path)
    asked = model(input_ids=tokens, use_cache=False, output_hidden_states=True)
    made, _ = opened.model(tokens, Where.run(2, LENGTH))
    close(made, asked.logits, SINGLE)
    plain = weights.load(
        write(tmp_path / "plain", {**opened.config, "rescale_every": 0}, load_file(tmp_path / "model.safetensors"), {})
    )
    assert (plain.model(tokens, Where.run(2, LENGTH))[0] - made).abs().max() > 0.01
    outputs = {f"hidden_states.{depth}": stream for depth, stream in enumerate(asked.hidden_states)}
    folder = write(
        tmp_path / "golden", opened.config, load_file(tmp_path / "model.safetensors"), {"input_ids": tokens}, outputs
    )
    for name, stream in replay(folder).items():
        close(stream, outputs[name], SINGLE)


@torch.no_grad()
def test_the_authors_names(tmp_path: Path) -> None:
    """The same tensors as their authors call them, read and written back."""
    words = {"rwkv.": "", "embeddings": "emb", "pre_ln": "ln0", "attention": "att", "feed_forward": "ffn"}
    words |= {"time_mix_key": "time_mix_k", "time_mix_value": "time_mix_v", "time_mix_receptance": "time_mix_r"}
    model = saved(reference.RwkvForCausalLM(config()), tmp_path / "theirs")
    tensors = load_file(tmp_path / "theirs" / "model.safetensors")
    renamed = {reduce(lambda name, word: name.replace(*word), words.items(), name): t for name, t in tensors.items()}
    opened = weights.load(write(tmp_path / "authors", model.config.to_dict(), renamed, {}))
    tokens = ids(1, LENGTH, VOCABULARY)
    close(opened.model(tokens, Where.run(1, LENGTH))[0], model(input_ids=tokens).logits, SINGLE)
    weights.write(opened, tmp_path / "back")
    back = load_file(tmp_path / "back" / "model.safetensors")
    assert back.keys() == renamed.keys()
    assert all(torch.equal(back[name], tensor) for name, tensor in renamed.items())


@torch.no_grad()
def test_a_body_without_a_head(tmp_path: Path) -> None:
    model = saved(reference.RwkvModel(config()), tmp_path)
    tokens = ids(1, LENGTH, VOCABULARY)
    opened = weights.load(tmp_path)
    assert isinstance(opened.model, Decoder)
    (stream, _), head = opened.model.hidden_states(tokens, Where.run(1, LENGTH)), opened.model.lm_head
    assert head.weight is opened.model.embeddings.table.weight
    close(stream, model(input_ids=tokens).last_hidden_state, SINGLE)


CUTS = [2, 5, 11]  # after one token the reference is wrong for several rows


@pytest.mark.parametrize("cut", CUTS)
@torch.no_grad()
def test_recorded_calls_of_any_length(cut: int, tmp_path: Path) -> None:
    """Folders of other sizes, cut elsewhere: where, is told by what is remembered there."""
    model = saved(
        reference.RwkvForCausalLM(config(hidden_size=10, num_hidden_layers=3, rescale_every=2)), tmp_path / "m"
    )
    tokens, labels = ids(3, 12, VOCABULARY), ids(3, 12, VOCABULARY, seed=1)
    whole = model(input_ids=tokens, labels=labels, use_cache=True)
    first = model(input_ids=tokens[:, :cut], use_cache=True)
    kept = [part.clone() for part in first.state]  # which the reference writes into
    outputs = {name: whole.logits.clone() for name in ("logits", "split_logits", "recurrent_logits")}
    outputs["loss"] = whole.loss
    outputs |= {f"state.{n}": part for n, part in enumerate(whole.state)}
    outputs |= {f"split_state_after_first.{n}": part for n, part in enumerate(kept)}
    inputs = {"input_ids": tokens, "labels": labels, "attention_mask": torch.tensor([[0] * 3 + [1] * 9] * 3)}
    folder = write(
        tmp_path / "golden", model.config.to_dict(), load_file(tmp_path / "m" / "model.safetensors"), inputs, outputs
    )
    made = replay(folder)
    assert made.keys() == outputs.keys()
    for name, wanted in outputs.items():
        close(made[name], wanted, SINGLE)


def test_what_is_not_fed_is_refused(tmp_path: Path) -> None:
    folder = GOLDEN / "rwkv" / "lm_state"
    tensors = {name: load_file(folder / f"{name}.safetensors") for name in ("model", "inputs", "outputs")}
    opened = weights.load(folder)
    more = tensors["inputs"] | {"state.0": tensors["outputs"]["state.0"]}
    with pytest.raises(WeightsError, match=r"holds state\.0, which heed does not feed to such a model"):
        replay(write(tmp_path / "a", opened.config, tensors["model"], more))
    odd = {"split_state_after_first.1": torch.zeros(2, 5, 2)}
    with pytest.raises(WeightsError, match=r"is of the shape \[2, 5, 2\]; needed are rows, channels, layers"):
        replay(write(tmp_path / "b", opened.config, tensors["model"], tensors["inputs"], odd))
    wide = {**opened.config, "attention_hidden_size": 10**9}
    with pytest.raises(WeightsError, match="no tensor is wider"):
        weights.load(write(tmp_path / "c", wide, tensors["model"], {}))
