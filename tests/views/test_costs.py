"""`heed cost`: operations beside torch's counter on numbers and beside a formula, state beside what is really held."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from heed.core.config import kind_of
from heed.core.contract import MixerConfig, Where
from heed.core.errors import ConfigError, InputError
from heed.core.state import nbytes
from heed.mixers import MIXERS, Attention, Lstm, Rwkv
from heed.models import Decoder, Encoder
from heed.models.architectures.t5 import T5
from heed.parts.masks import Window
from heed.views import Cost, cost
from heed.views.costs import tokens_of
from heed.views.flops import FEW, counted, counter
from heed.views.subject import given, outputs, subject
from heed.weights.edits import Quantised, edit

TOKENS = 12
STREAMING = {kind_of(config): config.samples()[0] for config in MIXERS if config.samples()[0].build(24).streams}
BESIDE = ("chunked_cross", "cross", "knn")  # these ask a source, and a decoder alone has none


def decoder(mixer: MixerConfig, depth: int = 2) -> Decoder.Config:
    return Decoder.Config(vocabulary=11, width=24, depth=depth, mixer=mixer)


@contextmanager
def without_onednn() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it tells of graphics cards
        with torch.backends.mkldnn.flags(enabled=False):
            yield


def on_numbers(shape: Any, tokens: int) -> tuple[int, int]:
    """Operations that torch's counter sees when the model really runs, forwards and backwards."""
    torch.manual_seed(0)
    model, reading = shape.build().eval(), given(shape, tokens, device="cpu")
    # torch counts neither its fused attention on a processor nor oneDNN's LSTM, so that both are written out here
    with sdpa_kernel(SDPBackend.MATH), without_onednn():
        with FlopCounterMode(display=False) as forward:
            y = outputs(model, reading)
        with FlopCounterMode(display=False) as backward:
            y.sum().backward()
    return forward.get_total_flops(), backward.get_total_flops()


@pytest.mark.parametrize("kind", [kind for kind in STREAMING if kind not in BESIDE])
def test_operations_are_those_that_torch_counts_on_numbers(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heed.kernels.dispatch._built", lambda: False)  # a scan is one operator, or written out
    shape = decoder(STREAMING[kind], depth=1)
    found = counted(subject(shape), TOKENS)
    if found is None:  # it reads its numbers to decide what it computes, and says so
        assert cost(shape, lengths=[TOKENS]).at[0].forward is None
    else:
        assert (found.forward, found.backward) == on_numbers(shape, TOKENS)


def test_operations_of_a_transformer_are_its_formula() -> None:
    heads, size, hidden, width, vocabulary, n = 4, 6, 96, 24, 11, 32
    shape = decoder(Attention.Config(heads=heads))
    (at,) = cost(shape, lengths=[n]).at
    inner = heads * size
    per_layer = 2 * (4 * width * inner + 2 * width * hidden) + 4 * n * inner
    assert at.forward == 2 * per_layer + 2 * width * vocabulary
    assert at.decoding is not None
    assert at.decoding == 2 * per_layer + 2 * width * vocabulary + 2 * 4 * inner  # the new token sees one more: itself
    assert at.training == pytest.approx(3 * at.forward, rel=0.01)


@torch.no_grad()
def test_the_kernel_of_a_scan_counts_what_it_stands_for() -> None:
    torch.manual_seed(0)
    shape = decoder(STREAMING["mamba"], depth=1)
    model, reading = shape.build().eval(), given(shape, TOKENS, device="cpu")
    with counter() as found:
        outputs(model, reading)
    alone = counted(subject(shape), TOKENS)
    assert alone is not None
    assert found.get_total_flops() == alone.forward


def test_a_loop_is_continued_from_few_tokens_exactly() -> None:
    shape = decoder(Lstm.Config(), depth=1)
    tokens = 5 * FEW
    found = counted(subject(shape), tokens)
    assert found is not None
    assert (found.forward, found.backward) == on_numbers(shape, tokens)


def test_quantised_weights_cost_as_many_operations() -> None:
    torch.manual_seed(0)
    shape = Encoder.Config(vocabulary=11, width=32, depth=1, mixer=Attention.Config(heads=2))
    model, reading = shape.build().eval(), given(shape, TOKENS, device="cpu")
    with torch.no_grad(), counter() as plain:
        outputs(model, reading)
    for bits in ("int8", "int4"):
        other = edit(shape.build(), Quantised(bits=bits)).eval()
        with torch.no_grad(), counter() as few:
            outputs(other, reading)
        assert few.get_total_flops() == plain.get_total_flops()


@pytest.mark.parametrize("rows", [1, 3])
def test_bytes_of_state_are_those_really_held(rows: int) -> None:
    found = cost(decoder(Attention.Config(heads=4)), lengths=[TOKENS], rows=rows)
    versions = {version.name: version for version in found.versions}
    assert set(versions) >= {"as it is", "attention, MHA", "attention, MQA", "retention", "rnn", "convolution"}
    model = decoder(Attention.Config(heads=4, kv_heads=1)).build().eval()
    _, state = model(torch.zeros(rows, TOKENS, dtype=torch.long), Where.run(rows, TOKENS), model.start(rows))
    assert versions["attention, MQA"].state == (nbytes(state),)
    assert versions["as it is"].state == versions["attention, MHA"].state
    assert found.at[0].state == versions["as it is"].state[0]


def test_steps_and_paths_are_those_of_the_table() -> None:
    found = cost(decoder(Attention.Config(heads=4, mask=Window(back=4))), lengths=[16, 64])
    at = {version.name: (version.steps, version.path) for version in found.versions}
    assert at["as it is"] == ((1, 1), (4, 16))  # a window of four is passed on and on
    assert at["attention, MHA"] == ((1, 1), (1, 1))
    assert at["rnn"] == ((16, 64), (16, 64))
    assert at["retention"] == ((4, 6), (16, 64))
    assert at["convolution"][0] == (1, 1)


def test_an_encoder_decoder_and_an_encoder_have_a_cost() -> None:
    translator = T5.load({"width": 16, "depth": 1, "heads": 2, "hidden": 20}).sized(11)
    (at,) = cost(translator, lengths=[8]).at
    assert at.forward is not None
    assert at.forward * 8 == on_numbers(translator, 8)[0]
    (one,) = cost(Encoder.Config(vocabulary=11, width=8, depth=1), lengths=[8]).at
    assert one.state is None  # it does not stream
    assert one.decoding is None


def test_what_has_no_place_for_so_many_tokens_says_so() -> None:
    from heed.parts.positions import Learned

    shape = Decoder.Config(vocabulary=5, width=8, depth=1, position=Learned.Config(length=16))
    short, long = cost(shape, lengths=[16, 17]).at
    assert short.forward is not None
    assert long.forward is None


def test_recipes_files_and_lengths(tmp_path: Path) -> None:
    assert [tokens_of(given) for given in ("512", "8k", "1M", 7)] == [512, 8192, 1 << 20, 7]
    for wrong in ("8q", "", "-1", 0):
        with pytest.raises(InputError):
            tokens_of(wrong)
    named = cost("characters", lengths=["1k"], vocabulary=65)
    assert named.weights == sum(weight.numel() for weight in subject("characters", vocabulary=65).model().parameters())
    (tmp_path / "model.json").write_text(json.dumps(decoder(Rwkv.Config()).dump()))
    assert cost(str(tmp_path / "model.json"), lengths=[4]).weights > 0
    with pytest.raises(ConfigError, match="did you mean characters"):
        cost("charactars.toml")
    with pytest.raises(InputError, match="1 or more rows"):
        cost("characters", rows=0)


def test_the_figure_tells_the_numbers(tmp_path: Path) -> None:
    import io

    from rich.console import Console

    found = cost(decoder(Attention.Config(heads=4)), lengths=[16, 64], time=True)
    assert isinstance(found, Cost)
    assert found.seconds is not None
    assert found.seconds > 0
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(found.text_figure())
    told = console.export_text()
    assert f"{found.weights:,} weights" in told
    assert "measured here" in told
    page = found.html()
    assert "<script" not in page
    assert "polyline" in page
    assert json.loads(json.dumps(found.plain()))["weights"] == found.weights
