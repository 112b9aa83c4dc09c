"""What a pass sees: the weights of `heed.look`, layer by layer, kept while there is room and computed again after."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import heed
from heed.core.errors import InputError
from heed.studio.reading import Reading
from heed.studio.scenes import Scene
from heed.studio.steps import attention_steps
from tests.studio.serving import recorded

PARTS = {
    "gpt2/lm": ["self"],
    "albert/pretraining": ["self"],
    "t5/seq2seq": ["encoder", "decoder", "cross"],
    "whisper/seq2seq": ["encoder", "decoder", "cross"],
    "vit/cls": ["self"],
    "longformer/mlm_noglobal": ["self"],
    "rwkv/lm_state": ["self"],
}


@pytest.mark.parametrize("place", PARTS)
@pytest.mark.parametrize("room", [1 << 29, 0], ids=["kept", "again"])
def test_weights_are_those_of_look(place: str, room: int) -> None:
    m, given = recorded(place)
    reading = Reading(m.model, Scene(given), room)
    assert sorted(reading.parts) == sorted(PARTS[place])
    wanted: dict[str, list[torch.Tensor]] = {}
    if heed.pipelines.attentions.shows_weights(m.model):
        with torch.no_grad(), heed.look(m.model, "*.weights") as seen:
            given.run(m.model)
        wanted = {name: list(shown) for name, shown in seen.items() if shown}
    shown = [layer for layer in reading.layers if layer.heads]
    assert len(shown) == sum(map(len, wanted.values()))
    for layer in shown:
        weights = wanted[f"{layer.name}.weights"].pop(0)  # a shared block is shown at each of its depths
        assert torch.equal(torch.from_numpy(reading.weights(layer)), weights[0].float())
        assert layer.peaks == tuple(float(head.abs().max()) for head in weights[0].float())
    if room == 0:
        assert len(reading._kept) <= 1, "no more than one layer is held"


def test_nothing_is_left_behind_on_the_model() -> None:
    m, given = recorded("gpt2/lm")
    assert given.ids is not None
    before = m.model(given.ids)[0]
    Reading(m.model, Scene(given))
    assert not any(len(one._forward_hooks) + len(one._forward_pre_hooks) for one in m.model.modules())
    assert not any(point.watched for point in heed.parts.look.points(m.model).values())
    assert torch.equal(m.model(given.ids)[0], before)


def test_what_shows_no_weights_says_so() -> None:
    m, given = recorded("mamba/lm")
    reading = Reading(m.model, Scene(given))
    layer = reading.layer("self", 0)
    with pytest.raises(InputError, match="Mamba has no weights to show"):
        reading.weights(layer)
    with pytest.raises(InputError, match="not softmax attention"):
        attention_steps(layer.mixer, layer.x, layer.where, 0, 0)


@pytest.mark.parametrize(
    "place", ["gpt2/lm", "bert/pretraining", "t5/seq2seq", "whisper/seq2seq", "llama/lm", "bloom/lm"]
)
def test_steps_end_in_the_weights_that_look_shows(place: str) -> None:
    """Also with rotations, biases of distance, groups of heads, and across to a source."""
    m, given = recorded(place)
    reading = Reading(m.model, Scene(given))
    for layers in reading.parts.values():
        layer = layers[-1]
        weights = reading.weights(layer)
        for head, token in ((0, 0), (layer.heads - 1, layer.shape[0] - 1)):
            steps = attention_steps(layer.mixer, layer.x, layer.where, head, token)
            torch.testing.assert_close(torch.tensor(steps["weights"]).float(), torch.from_numpy(weights[head, token]))
            with torch.no_grad():
                y, _ = layer.mixer(layer.x, layer.where)
            each = [
                torch.tensor(attention_steps(layer.mixer, layer.x, layer.where, one, token)["out"])
                for one in range(layer.heads)
            ]
            mixer: Any = layer.mixer
            bias = 0.0 if mixer.out.bias is None else mixer.out.bias.detach()
            mixed = torch.stack(each).sum(0) + bias
            torch.testing.assert_close(mixed.float(), y[0, token], rtol=1e-4, atol=1e-5)
