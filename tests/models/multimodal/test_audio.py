"""Audio encoders: the laws from their frames on, what their embeddings compute, and rows of different lengths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heed.core.contract import Given, Mixer, Where
from heed.core.errors import CannotStream, ConfigError, InputError
from heed.core.laws import LAWS, Case, Law
from heed.core.spec import Spec
from heed.core.state import State
from heed.mixers import Attention, Cross
from heed.models import AudioEncoder, Decoder, Encoder, Seq2seq
from heed.parts.inputs.audio import Around, AudioEmbeddings, Mels, OverTime, Waves, strided
from heed.parts.layers.norms import LayerNorm
from heed.parts.masks import Window
from heed.parts.outputs.heads import Tagged
from heed.parts.positions import Learned, Sinusoid
from heed.parts.residual.wiring import PostNorm, PreNorm

WIDTH = 24
SMALL = Waves.Config(channels=(5, 7), kernels=(4, 3), strides=(2, 2), inner=LayerNorm(), around=4, groups=3)
EMBEDDINGS = {
    "mels": Mels.Config(bins=5, position=Learned.Config(length=40)),
    "mels, waves for positions": Mels.Config(bins=3, position=Sinusoid.Config()),
    "mels without positions": Mels.Config(bins=3),
    "waves": SMALL,
    "waves, layer norms": SMALL.model_copy(update={"between": "layer", "bias": True, "norm": LayerNorm()}),
    "waves, odd kernel": SMALL.model_copy(update={"around": 5, "inner": None, "hides": True, "activation": "relu"}),
}
PRE = PreNorm()
MIXERS = (Attention.Config(mask=Window(back=1, ahead=2)), AudioEncoder.Config.model_fields["mixer"].default[0])


def built(embeddings: Any, wiring: Any = PRE, mixer: Any = MIXERS[1]) -> AudioEncoder:
    torch.manual_seed(0)
    heads = Tagged.Config(labels=3)
    config = AudioEncoder.Config(embeddings=embeddings, width=WIDTH, depth=2, mixer=mixer, wiring=wiring, heads=heads)
    return config.build().double().eval()


class Frames(Mixer[State]):
    """An audio encoder from its bare frames on."""

    def __init__(self, model: AudioEncoder) -> None:
        super().__init__()
        self.model, self.reach = model, model.reach

    def spec(self) -> Spec:
        return self.model.spec()

    def forward(self, x: Tensor, where: Where, state: State | None = None) -> tuple[Tensor, State | None]:
        return self.model.mix(x, where, state)  # type: ignore[arg-type]  # a model's state is a tuple


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("embeddings", EMBEDDINGS.values(), ids=EMBEDDINGS)
@pytest.mark.parametrize("mixer", MIXERS, ids=["window", "whole"])
def test_laws(embeddings: Any, mixer: Any, law: Law) -> None:
    finding = law(Frames(built(embeddings, mixer=mixer)), Case.make(WIDTH))
    assert finding.holds, finding


def sounds(embeddings: Any, rows: int, length: int) -> Tensor:
    shape = (rows, length, embeddings.bins) if isinstance(embeddings, Mels.Config) else (rows, length)
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("embeddings", EMBEDDINGS.values(), ids=EMBEDDINGS)
@pytest.mark.parametrize("wiring", [PRE, PostNorm()], ids=["pre", "post"])
@torch.no_grad()
def test_a_row_is_encoded_as_if_it_were_alone(embeddings: Any, wiring: Any) -> None:
    model, lengths = built(embeddings, wiring), (31, 20, 13, 3)
    sound = sounds(embeddings, 4, 31)
    for row, length in enumerate(lengths):
        sound[row, length:] = torch.nan
    seen = model.encode(sound, Where.ragged(lengths))
    for row, length in enumerate(lengths[:3]):
        alone = model.encode(sound[row : row + 1, :length], Where.run(1, length))
        found = seen.parts[0][row][seen.real[row]]
        assert found.shape == alone.parts[0][0].shape
        assert (found - alone.parts[0][0]).abs().max() < 1e-12
    answer = model.heads["tagged"](seen.parts[0], seen)
    assert answer.shape == (*seen.shape, 3)
    if isinstance(embeddings, Waves.Config):
        assert not seen.real[3].any()  # too short for one frame


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 2, 1), (10, 5, 0), (2, 2, 0), (3, 1, 1)])
def test_stamps_count_what_a_convolution_gives(kernel: int, stride: int, padding: int) -> None:
    convolution = nn.Conv1d(1, 1, kernel, stride, padding)
    lengths = list(range(kernel, 40))
    wanted = [convolution(torch.zeros(1, 1, length)).shape[2] for length in lengths]
    assert [strided(Where.run(1, length), kernel, stride, padding).shape[1] for length in lengths] == wanted
    assert strided(Where.ragged([*lengths, 0]), kernel, stride, padding).real.sum(1).tolist() == [*wanted, 0]


def test_frames_are_told_where_they_are_by_what_is_around_them() -> None:
    """The equation in loops: w_k = g_k v_k / ‖v_k‖, and frame t sees t - ⌊K/2⌋ on."""
    for kernel in (4, 5):
        around = Around(6, kernel, 2, "relu").double()
        nn.init.normal_(around.gain)
        nn.init.normal_(around.bias)
        x = torch.randn(1, 7, 6, dtype=torch.float64)
        wanted = torch.zeros(7, 6, dtype=torch.float64)
        for t in range(7):
            for out in range(6):
                total = around.bias[out].item()
                for k in range(kernel):
                    at, direction = t + k - kernel // 2, around.direction[:, :, k]
                    if 0 <= at < 7:
                        inputs = x[0, at, out // 3 * 3 : out // 3 * 3 + 3]
                        gain = around.gain[0, 0, k] / direction.square().sum().sqrt()
                        total += (gain * direction[out] @ inputs).item()
                wanted[t, out] = max(total, 0.0)
        assert (around(x)[0] - wanted).abs().max() < 1e-12


def test_a_norm_over_time_does_not_count_padding() -> None:
    norm = OverTime(3).double()
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    x = torch.randn(2, 3, 6, dtype=torch.float64)
    found = norm(x, Where.ragged([6, 4]))
    assert torch.allclose(found[0], F.group_norm(x[:1], 3, norm.weight, norm.bias)[0], atol=1e-12)
    assert torch.allclose(found[1, :, :4], F.group_norm(x[1:, :, :4], 3, norm.weight, norm.bias)[0], atol=1e-12)
    assert torch.equal(norm(x, Where.run(2, 6)), F.group_norm(x, 3, norm.weight, norm.bias))


@pytest.mark.parametrize(
    ("embeddings", "sound", "where", "message"),
    [
        (SMALL, torch.zeros(1, 7), Where.run(1, 7), "a sound of 7 samples is too short; one frame needs 8"),
        (SMALL, torch.zeros(1, 9, 2), Where.run(1, 9), r"samples of shape \[rows, samples\]"),
        (SMALL, torch.zeros(1, 9, dtype=torch.long), Where.run(1, 9), r"got torch.int64"),
        (EMBEDDINGS["mels"], torch.zeros(1, 9, 4), Where.run(1, 9), r"spectrogram of shape \[rows, frames, 5\]"),
        (EMBEDDINGS["mels"], torch.zeros(1, 99, 5), Where.run(1, 99), "position 49 is outside 0 to 39"),
        (SMALL, torch.zeros(1, 9), Where.run(1, 9, start=2), "a sound is heard whole"),
    ],
)
def test_what_is_no_sound_is_refused(embeddings: Any, sound: Tensor, where: Where, message: str) -> None:
    model = built(embeddings)
    with pytest.raises(InputError, match=message):
        model.encode(sound.double() if sound.is_floating_point() else sound, where)


def test_an_audio_encoder_cannot_continue() -> None:
    model = built(EMBEDDINGS["mels without positions"], mixer=Attention.Config())
    state = model.start(1)
    with pytest.raises(CannotStream, match="audio is encoded whole"):
        model(torch.zeros(1, 4, 3).double(), Where.run(1, 4), state)


@pytest.mark.parametrize("embeddings", EMBEDDINGS.values(), ids=EMBEDDINGS)
def test_configs_come_back_from_files(tmp_path: Path, embeddings: Any) -> None:
    encoder = AudioEncoder.Config(embeddings=embeddings, width=8, depth=1)
    assert encoder.sized(99) == encoder.model_copy(update={"vocabulary": 99})
    decoder = Decoder.Config(vocabulary=6, width=8, depth=1, cross=Cross.Config())
    config = Seq2seq.Config(encoder=encoder, decoder=decoder)
    for suffix in (".toml", ".json"):
        config.write(tmp_path / f"a{suffix}")
        assert Seq2seq.Config.read(tmp_path / f"a{suffix}") == config


def test_encoders_of_tokens_need_no_kind_and_sounds_share_no_table() -> None:
    decoder = {"vocabulary": 6, "width": 8, "depth": 1, "cross": {}}
    read = Seq2seq.Config.load({"encoder": {"vocabulary": 6, "width": 8, "depth": 1}, "decoder": decoder})
    assert isinstance(read.encoder, Encoder.Config)
    audio = {"kind": "audio", "embeddings": {"kind": "mels"}, "width": 8, "depth": 1}
    with pytest.raises(ConfigError, match="a shared table needs one vocabulary, not that of a sound and 6"):
        Seq2seq.Config.load({"encoder": audio, "decoder": decoder, "shared": True})
    with pytest.raises(ConfigError, match=r"encoder.kind is 'audoi'; did you mean audio\?"):
        Seq2seq.Config.load({"encoder": {**audio, "kind": "audoi"}, "decoder": decoder})
    with pytest.raises(ConfigError, match="they have 1, 7 and 7 entries"):
        Waves.Config(channels=(3,))


@torch.no_grad()
def test_a_text_is_written_from_a_sound() -> None:
    torch.manual_seed(0)
    encoder = AudioEncoder.Config(embeddings=Mels.Config(bins=5), width=8, depth=1)
    decoder = Decoder.Config(vocabulary=6, width=8, depth=2, cross=Cross.Config())
    model = Seq2seq.Config(encoder=encoder, decoder=decoder).build().double().eval()
    assert isinstance(model.encoder, AudioEncoder)
    assert isinstance(model.encoder.embeddings, AudioEmbeddings)
    encoded = model.encode(torch.randn(2, 9, 5).double(), Where.ragged([9, 6]))
    assert encoded.real.sum(1).tolist() == [5, 3]
    tokens = torch.randint(6, (2, 4))
    whole, _ = model(tokens, Where.run(2, 4).give(encoder_output=encoded))
    state = model.start(2, Given(encoder_output=encoded))
    for t in range(4):
        logits, after = model(tokens[:, t : t + 1], Where.run(2, 1, start=t), state)
        assert after is not None
        state = after
        assert (logits[:, 0] - whole[:, t]).abs().max() < 1e-12
