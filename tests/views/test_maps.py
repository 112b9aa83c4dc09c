"""`heed.see`: its numbers are those of `heed.look`, for models of every kind; what it says in words; bad input."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import heed
from heed.core.errors import InputError
from heed.pipelines import Pipeline
from heed.pipelines.attentions import Inspected
from heed.views import Maps, see
from tests.pipelines.small import bert, gpt2, t5
from tests.weights.support import GOLDEN


def given(place: str) -> tuple[Pipeline, Inspected]:
    """A recorded checkpoint and its first input."""
    m, inputs = heed.load(GOLDEN / place), load_file(GOLDEN / place / "inputs.safetensors")
    ids = inputs.get("input_ids", inputs.get("labels"))
    row = torch.empty(0) if ids is None else ids[:1].clamp(min=0).long()
    if place.startswith("vit"):
        return m, Inspected(source=inputs["pixel_values"][:1].to(m.dtype))
    if place.startswith("whisper"):
        return m, Inspected(row, tuple(map(str, row[0].tolist())), inputs["input_features"][:1].mT.to(m.dtype))
    if place.startswith("t5"):
        target = inputs["labels"][:1]
        return m, Inspected(target, tuple(map(str, target[0].tolist())), row)
    return m, Inspected(row, tuple(map(str, row[0].tolist())))


def looked(m: Pipeline, reading: Inspected) -> dict[str, list[Tensor]]:
    with torch.no_grad(), heed.look(m.model, "*.weights") as seen:
        reading.run(m.model)
    return seen


PARTS = {
    "gpt2/lm": {"self"},
    "bert/pretraining": {"self"},
    "albert/pretraining": {"self"},
    "t5/seq2seq": {"encoder", "decoder", "cross"},
    "whisper/seq2seq": {"encoder", "decoder", "cross"},
    "vit/cls": {"self"},
}


@pytest.mark.parametrize("place", PARTS)
def test_weights_are_those_of_look(place: str) -> None:
    m, reading = given(place)
    found, wanted = see(m, reading), looked(m, reading)
    assert set(found.parts) == PARTS[place]
    for name, shown in wanted.items():
        layers = [layer for layer in found.layers if layer.point == name]
        assert len(layers) == len(shown)  # a shared block is shown at each of its depths
        for layer, tensor in zip(layers, shown, strict=True):
            assert torch.equal(layer.weights, tensor[0].float())
            assert layer.weights.shape == (len(layer.heads), len(layer.rows), len(layer.columns))
    for part in found.parts:
        numbers = [layer.number for layer in found.layers if layer.part == part]
        assert numbers == list(range(len(numbers)))


@pytest.mark.parametrize("place", ["rwkv/lm_state", "mamba/lm"])
def test_mixers_without_weights_show_their_influence(place: str) -> None:
    m, reading = given(place)
    found = see(m, reading, influence="exact")
    assert found.parts == ("influence",)
    stack = m.model.get_submodule("stack")
    assert len(found.layers) == len(list(stack.get_submodule("blocks").children()))
    inputs: list[tuple[Tensor, heed.Where]] = []
    first = stack.get_submodule("blocks.0.mixer")
    handle = first.register_forward_pre_hook(lambda _, told: inputs.append((told[0], told[1])))
    with torch.no_grad():
        reading.run(m.model)
    handle.remove()
    (x, where), *_ = inputs
    blocks: Tensor = torch.autograd.functional.jacobian(lambda stream: first(stream, where)[0], x.detach())
    wanted = blocks[0, :, :, 0].double().square().sum((1, 3)).sqrt().float()
    torch.testing.assert_close(found.layers[0].weights[0], wanted, rtol=1e-4, atol=1e-6)
    assert all(not layer.weights.triu(1).any() for layer in found.layers)


def test_one_layer_and_one_head_are_those_of_all(tmp_path: Path) -> None:
    _, m = gpt2(tmp_path)
    whole, one = see(m, "the cat sat"), see(m, "the cat sat", layer=1, head=1)
    (layer,) = one.layers
    assert (layer.number, layer.heads) == (1, (1,))
    assert torch.equal(layer.weights[0], whole.weights(1)[1])
    assert layer.rows == tuple(m.tokenizer.tokens(m.tokenizer.encode("the cat sat")))


def test_influence_stands_beside_weights_with_their_correlation(tmp_path: Path) -> None:
    _, m = gpt2(tmp_path)
    found = see(m, "the cat sat on a mat", influence="probes")
    assert found.parts == ("self", "influence")
    assert set(found.agreement) == {0, 1}
    assert all(-1 <= value <= 1 for value in found.agreement.values())


def test_a_source_makes_the_text_its_target(tmp_path: Path) -> None:
    _, m = t5(tmp_path)
    found = see(m, "a dog", source="the cat sat")
    cross = next(layer for layer in found.layers if layer.part == "cross")
    assert "cat" in cross.columns
    assert "dog" in cross.rows
    assert {layer.part for layer in see(m, "the cat sat").layers} == {"encoder", "decoder", "cross"}


def test_a_pair_names_the_heads_that_change(tmp_path: Path) -> None:
    _, m = bert(tmp_path)
    same = see(m, "the cat sat", pair="the cat sat").changes()
    assert all(change.moved == 0 for change in same)
    found = see(m, "the cat sat on a mat", pair="the cat ran on a mat", of="cat")
    changes = found.changes()
    assert [change.moved for change in changes] == sorted((change.moved for change in changes), reverse=True)
    assert {change.looks for change in changes} == {"cat"}
    first = changes[0]
    one, two = (next(x for x in some if x.number == first.layer) for some in (found.layers, found.others))
    row, column = one.rows.index("cat"), one.columns.index(first.won)
    assert first.won_from == pytest.approx(float(one.weights[first.head, row, column]))
    assert first.won_to == pytest.approx(float(two.weights[first.head, row, column]))


def test_the_text_figure_and_json_say_what_is_strongest(tmp_path: Path) -> None:
    from rich.console import Console

    _, m = gpt2(tmp_path)
    found = see(m, "the cat sat on the mat", pair="the dog sat on the mat")
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(found.text_figure())
    told = console.export_text()
    best = found.strongest(1)[0]
    assert f"{best.weight:.3f}" in told
    assert "what changes in: the dog sat on the mat" in told
    data = json.loads(json.dumps(found.plain()))
    layer = data["maps"][0]
    assert torch.equal(torch.tensor(layer["weights"]), found.layers[0].weights)
    assert data["strongest"][0]["weight"] == best.weight


def test_html_in_tokens_is_text() -> None:
    model = heed.models.Decoder.Config(vocabulary=3, width=8, depth=1).build().eval()

    class Plain(heed.pipelines.Pipeline):
        what = "a model of three tokens"

        def __init__(self) -> None:
            self.model = model

        def respond(self, text: str) -> heed.pipelines.Response:
            raise NotImplementedError

    evil = "</script><script>alert(1)</script>"
    page = see(Plain(), Inspected(torch.tensor([[0, 1, 2]]), (evil, "<b>", "&amp;"))).html()
    assert page.count("<script") == 2  # the data and the script of the page
    assert "alert(1)</script>" not in page
    assert "<b>" not in page


def test_bad_input_is_refused_in_words(tmp_path: Path) -> None:
    _, m = gpt2(tmp_path)
    for text in ("", "  \n"):
        with pytest.raises(InputError, match="the text is empty"):
            see(m, text)
    with pytest.raises(InputError, match="no layer 2; layers are counted from 0 to 1"):
        see(m, "the cat", layer=2)
    with pytest.raises(InputError, match="no head 5 in layer 0; its heads are counted from 0 to 1"):
        see(m, "the cat", head=5)
    with pytest.raises(InputError, match="25 tokens, the model has places for 24"):
        see(m, "cat " * 25)
    with pytest.raises(InputError, match="give the other text"):
        see(m, "the cat", of="cat")
    with pytest.raises(InputError, match="no token that both texts have is called 'mouse'"):
        see(m, "the cat", pair="the dog", of="mouse").changes()
    with pytest.raises(InputError, match="give the other one as well"):
        see(m, "the cat").changes()


def test_a_text_that_would_not_fit_into_memory_is_refused_at_once() -> None:
    model = heed.models.Decoder.Config(vocabulary=3, width=8, depth=2).build().eval()
    long = Inspected(torch.zeros(1, 100_000, dtype=torch.long), ("x",) * 100_000)
    with pytest.raises(InputError, match=r"100,000 tokens make maps of 10,000,000,000 pairs .* at most 2,896 tokens"):
        heed.views.collect.layers_of(model, long)
    shorter = Inspected(torch.zeros(1, 4000, dtype=torch.long), ("x",) * 4000)
    with pytest.raises(InputError, match="choose one: layer=0"):
        heed.views.collect.layers_of(model, shorter)


def test_a_model_without_anything_to_see_says_so() -> None:
    class Still(heed.pipelines.Pipeline):
        what = "a model that does nothing"

        def __init__(self) -> None:
            self.model = heed.mixers.Fourier.Config().build(8)

        def respond(self, text: str) -> heed.pipelines.Response:
            raise NotImplementedError

    assert not list(nn.Module.parameters(Still().model))
    with pytest.raises(InputError, match="shows no attention weights"):
        see(Still(), Inspected(torch.zeros(1, 2, dtype=torch.long), ("a", "b")))


def test_maps_say_what_they_are(tmp_path: Path) -> None:
    _, m = t5(tmp_path)
    found = see(m, "a dog", source="the cat sat")
    assert isinstance(found, Maps)
    assert "cross 2 layers × 2 heads × " in repr(found)
    with pytest.raises(InputError, match="no layer 9"):
        found.weights(9)
