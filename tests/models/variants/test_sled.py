"""Long sources: read in overlapping windows, and attended to by the nearest, with the weights of a trained model."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from heed.core.contract import Given, Where
from heed.core.errors import CannotStream, ConfigError, InputError
from heed.mixers import Attention, Cross, KnnCross
from heed.models import Decoder, Encoder, Seq2seq, SledEncoder, transformer, unlimiformer
from heed.models.architectures.transformer import TINY
from heed.parts.masks import Whole
from heed.parts.positions import Learned, Rope

WIDTH, VOCABULARY = 16, 11


def built(window: int, **options: object) -> tuple[SledEncoder, Encoder]:
    """In windows and at once, with the same weights."""
    torch.manual_seed(0)
    common = {"vocabulary": VOCABULARY, "width": WIDTH, "depth": 2, **options}
    plain = Encoder.Config(**common).build().double().eval()  # type: ignore[arg-type]
    wide = SledEncoder.Config(**common, window=window).build().double().eval()  # type: ignore[arg-type]
    wide.load_state_dict(plain.state_dict())
    return wide, plain


def by_hand(encoder: Encoder, tokens: Tensor, window: int) -> Tensor:
    """Window by window; every token from the window that it stands in the middle half of."""
    length, half = len(tokens), window // 2
    if length <= window:
        return encoder(tokens[None], Where.run(1, length))[0][0]
    starts = [*range(0, length - window, half), length - window]
    kept = torch.zeros(length, WIDTH, dtype=torch.float64)
    for number, start in enumerate(starts):
        y, _ = encoder(tokens[None, start : start + window], Where.run(1, window))
        first = 0 if number == 0 else number * half + window // 4
        last = length if number == len(starts) - 1 else number * half + window // 4 + half
        kept[first:last] = y[0, first - start : last - start]
    return kept


@pytest.mark.parametrize("window", [4, 8, 12])
@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 9, 12, 13, 16, 17, 30])
def test_the_middle_halves_of_windows(window: int, length: int) -> None:
    wide, plain = built(window, position=Learned.Config(length=12))
    tokens = torch.randint(VOCABULARY, (length,))
    with torch.no_grad():
        y, _ = wide(tokens[None], Where.run(1, length))
        assert torch.allclose(y[0], by_hand(plain, tokens, window), rtol=0, atol=1e-12)


def test_rows_end_where_they_end() -> None:
    wide, plain = built(
        8, mixer=Attention.Config(mask=Whole(), position=Rope.Config()), position=Learned.Config(length=8)
    )
    lengths = [30, 19, 9, 8, 3, 0]
    tokens, where = torch.randint(VOCABULARY, (6, 30)), Where.ragged(lengths)
    with torch.no_grad():
        y, _ = wide(tokens.masked_fill(~where.real, -100), where)
        for row, length in enumerate(lengths[:-1]):
            wanted = by_hand(plain, tokens[row, :length], 8)
            assert torch.allclose(y[row, :length], wanted, rtol=0, atol=1e-12)


def test_a_source_of_one_window_is_read_at_once() -> None:
    wide, plain = built(20)
    tokens, where = torch.randint(VOCABULARY, (2, 20)), Where.ragged([20, 7])
    with torch.no_grad():
        assert torch.equal(wide(tokens, where)[0], plain(tokens, where)[0])


def seq2seq() -> Seq2seq:
    torch.manual_seed(0)
    return transformer(VOCABULARY, size=TINY).build().eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_trained_model_gives_what_it_gave(dtype: torch.dtype) -> None:
    """Where all source tokens are among the nearest, and the source is one window; whole and token by token."""
    model = seq2seq().to(dtype)
    twin = unlimiformer(model, nearest=9, window=12)
    assert isinstance(twin.encoder, SledEncoder)
    assert twin.decoder.head.weight is twin.decoder.embeddings.table.weight
    source, target = torch.randint(VOCABULARY, (3, 9)), torch.randint(VOCABULARY, (3, 6))
    here, there = Where.ragged([9, 4, 1]), Where.run(3, 6)
    bound = 1e-12 if dtype == torch.float64 else 1e-5
    with torch.no_grad():
        memories = [each.encode(source, here) for each in (model, twin)]
        scores = [
            each(target, there.give(encoder_output=m))[0] for each, m in zip((model, twin), memories, strict=True)
        ]
        assert scores[1].dtype == dtype
        assert torch.allclose(scores[0], scores[1], rtol=0, atol=bound)
        state = twin.start(3, Given(encoder_output=memories[1]))
        for t in range(6):
            score, after = twin(target[:, t : t + 1], Where.run(3, 1, start=t), state)
            assert after is not None
            state = after
            assert torch.allclose(score[:, 0], scores[0][:, t], rtol=0, atol=bound)


def test_a_long_source_is_within_reach() -> None:
    """Where a plain model has no positions left, the twin reads on; it hears few, so its scores are its own."""
    encoder = Encoder.Config(vocabulary=VOCABULARY, width=WIDTH, depth=1, position=Learned.Config(length=8))
    decoder = Decoder.Config(vocabulary=VOCABULARY, width=WIDTH, depth=1, cross=Cross.Config())
    model = Seq2seq.Config(encoder=encoder, decoder=decoder).build().eval()
    source, where = torch.randint(VOCABULARY, (1, 300)), Where.run(1, 300)
    with pytest.raises(InputError, match="position 299 is outside 0 to 7"):
        model.encode(source, where)
    twin = unlimiformer(model, nearest=4, window=8)
    with torch.no_grad():
        memory = twin.encode(source, where)
        scores, _ = twin(source[:, :5], Where.run(1, 5).give(encoder_output=memory))
    assert memory.shape == (1, 300)
    assert scores.isfinite().all()


def test_the_configuration_comes_back() -> None:
    config = unlimiformer(seq2seq(), nearest=3, window=8).config
    assert Seq2seq.Config.load(config.dump()) == config
    assert isinstance(config.decoder.cross, KnnCross.Config)
    plain = Decoder.Config.load({"vocabulary": 5, "width": 8, "depth": 1, "cross": {"heads": 2}})
    assert plain.cross == Cross.Config(heads=2)


def test_impossible_things_are_refused() -> None:
    with pytest.raises(ConfigError, match="a window of 10 has no middle half; use a multiple of 4, such as 8"):
        built(10)
    for wrong in (0, -4):
        with pytest.raises(ConfigError, match="window"):
            built(wrong)
    wide, _ = built(4, mixer=Attention.Config())
    with pytest.raises(CannotStream, match="SledEncoder looks any number of tokens ahead"):
        wide.start(1)
    where = Where.run(1, 9).give(marked=torch.zeros(1, 9, dtype=torch.bool))
    with pytest.raises(InputError, match="has no marked tokens"):
        wide(torch.zeros(1, 9, dtype=torch.long), where)
    with pytest.raises(ConfigError, match="nearest is 0"):
        unlimiformer(seq2seq(), nearest=0)
    with pytest.raises(ConfigError, match="cross.kind is 'mla'"):
        Decoder.Config.load({"vocabulary": 5, "width": 8, "depth": 1, "cross": {"kind": "mla"}})
