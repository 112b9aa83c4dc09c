"""A call that does not say which tokens it is about: the whole sequence, or those that follow the state's last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from heed.core.contract import Mixer, MixerConfig, Where
from heed.core.errors import InputError
from heed.core.laws import Case
from heed.core.spec import words
from heed.core.state import State
from heed.mixers import MIXERS, Attention, ChunkedCross, Cross, Rwkv
from heed.models import Decoder, Encoder, Seq2seq
from heed.parts.masks import Whole, Window

SAMPLES = [sample for kind in MIXERS for sample in kind.samples()]
DOES_NOT_TELL = "does not tell how many tokens came before"


def streaming() -> Iterator[MixerConfig]:
    """Samples that continue from a state and need nothing beside the stream."""
    for sample in SAMPLES:
        mixer = sample.build(24)
        beside = "source" in words(mixer.spec()) or isinstance(mixer, ChunkedCross)
        if mixer.streams and not beside:
            yield sample


def continued(mixer: Mixer[Any], x: torch.Tensor, begin: int, state: State) -> tuple[torch.Tensor, Any]:
    """Without `where`; with it, if the mixer asks for it."""
    try:
        return mixer(x, state=state)
    except InputError as error:
        if DOES_NOT_TELL not in str(error):
            raise
        return mixer(x, Where.run(*x.shape[:2], start=begin), state)


@pytest.mark.parametrize("sample", list(streaming()), ids=repr)
def test_a_state_tells_where_it_ends_or_says_that_it_cannot(sample: MixerConfig) -> None:
    """Whatever the mixer: the outputs of explicit stamps, or an error that names them. Never other outputs."""
    torch.manual_seed(0)
    mixer, case = sample.build(24).double().eval(), Case.make(width=24)
    rows, tokens = case.x.shape[:2]
    with torch.no_grad():
        whole, _ = mixer(case.x)
        said, _ = mixer(case.x, Where.run(rows, tokens))
        assert torch.equal(whole, said)
        state: Any = mixer.start(rows)
        for begin in range(0, tokens, 3):
            end = min(begin + 3, tokens)
            y, state = continued(mixer, case.x[:, begin:end], begin, state)
            assert torch.allclose(y, whole[:, begin:end], atol=1e-10, rtol=0)


def decode(model: Mixer[Any], ids: torch.Tensor, state: State | None) -> torch.Tensor:
    """One call per token, none of which says where it is."""
    made = []
    for column in range(ids.shape[1]):
        y, state = model(ids[:, column : column + 1], state=state)
        made.append(y)
    return torch.cat(made, 1)


def test_a_model_over_ids_needs_no_where() -> None:
    torch.manual_seed(0)
    model = Decoder.Config(vocabulary=11, width=8, depth=2, mixer=(Attention.Config(heads=2, mask=Window(back=2)),))
    built, ids = model.build().double().eval(), torch.randint(11, (2, 7))
    with torch.no_grad():
        logits, state = built(ids)
        assert state is None
        assert torch.equal(logits, built(ids, Where.run(2, 7))[0])
        assert torch.allclose(logits, decode(built, ids, built.start(2)), atol=1e-12, rtol=0)


def test_ragged_rows_go_on_where_each_of_them_ends() -> None:
    torch.manual_seed(0)
    model, ids = Decoder.Config(vocabulary=11, width=8, depth=1).build().double().eval(), torch.randint(11, (2, 6))
    with torch.no_grad():
        _, state = model(ids[:, :4], Where.ragged([4, 2]), model.start(2))
        y, _ = model(ids[:, 4:], state=state)
        alone, _ = model(torch.cat((ids[1:, :2], ids[1:, 4:]), 1))
    assert torch.allclose(y[1:], alone[:, 2:], atol=1e-12, rtol=0)


def test_an_encoder_decoder_needs_no_where() -> None:
    config = Seq2seq.Config(
        encoder=Encoder.Config(vocabulary=11, width=8, depth=1, mixer=(Attention.Config(heads=2, mask=Whole()),)),
        decoder=Decoder.Config(vocabulary=11, width=8, depth=1, cross=Cross.Config(heads=2)),
    )
    model, source = config.build().eval(), torch.randint(11, (2, 5))
    seen = model.encode(source)
    assert torch.equal(seen.parts[0], model.encode(source, Where.run(2, 5)).parts[0])


def test_a_recurrence_says_that_it_does_not_count() -> None:
    mixer = Rwkv.Config().build(8)
    with pytest.raises(InputError, match=rf"Rwkv {DOES_NOT_TELL}.*start=how_many"):
        mixer(torch.randn(2, 3, 8), state=mixer.start(2))


def test_a_mask_in_the_place_of_where_is_told_what_it_is() -> None:
    mixer, x = Attention.Config(heads=2).build(8), torch.randn(2, 3, 8)
    with pytest.raises(InputError, match=r"a Where, not a tensor \[2, 3\].*Where\.of_mask\(mask\)"):
        mixer(x, torch.ones(2, 3))  # type: ignore[arg-type]


def test_a_state_in_the_place_of_where_is_told_its_place() -> None:
    mixer = Attention.Config(heads=2).build(8)
    with pytest.raises(InputError, match="not a Log; a state is the third"):
        mixer(torch.randn(2, 3, 8), mixer.start(2))  # type: ignore[arg-type]


def test_ids_without_rows_are_told_to_have_one() -> None:
    model = Decoder.Config(vocabulary=11, width=8, depth=1).build()
    with pytest.raises(InputError, match=r"Decoder needs \[rows, tokens, \.\.\.\].*x\[None\]"):
        model(torch.tensor([1, 2, 3]))
