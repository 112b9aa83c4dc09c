"""Models under the laws, against torch's own layers, and by what they are made of."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import heed
from heed.core.config import Config
from heed.core.contract import Given, Where
from heed.core.errors import CannotStream, ConfigError
from heed.core.spec import price
from heed.core.state import nbytes, select
from heed.mixers import Attention, Cross
from heed.models import MODELS, Decoder, Encoder, Seq2seq, transformer
from heed.models.architectures.transformer import ANNOTATED, BASE, BIG, PAPER, TINY, TORCH
from heed.parts.masks import Window
from heed.verify.proof import STATEMENTS, Proof, proofs
from heed.verify.samples import samples

SAMPLES = [sample for kind in MODELS for sample in samples(kind)]


@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{sample!r:.120}")
def test_statement_holds(statement: str, sample: Config) -> None:
    finding = STATEMENTS[statement](sample)
    assert finding.holds, finding


@pytest.mark.parametrize("check", proofs([config.model_fields["kind"].default for config in MODELS])[8::9])
def test_models_over_token_ids(check: Callable[[], Proof]) -> None:
    proof = check()
    assert "token ids" in proof.statement
    assert proof.holds, proof


def test_a_model_can_be_copied() -> None:
    model = transformer(29, size=TINY).build().eval()
    twin = copy.deepcopy(model)
    tokens, where = torch.randint(29, (1, 4)), Where.run(1, 4)
    with torch.no_grad():
        assert torch.equal(model.encode(tokens, where).parts[0], twin.encode(tokens, where).parts[0])
    assert twin.decoder.head.weight is sources(twin)


def sources(model: Seq2seq) -> Tensor:
    """The embeddings of an encoder's tokens."""
    assert isinstance(model.encoder, Encoder)
    return model.encoder.embeddings.table.weight


def greedy(model: Seq2seq | Decoder, first: Tensor, given: Given, steps: int) -> Tensor:
    state, tokens = model.start(len(first), given), first[:, None]
    for t in range(steps):
        scores, after = model(tokens[:, -1:], Where.run(len(first), 1, start=t), state)
        assert after is not None
        state = after
        tokens = torch.cat((tokens, scores[:, -1].argmax(-1, keepdim=True)), 1)
    return tokens


def test_decoding_token_by_token_gives_the_tokens_of_the_whole_pass() -> None:
    config = transformer(29, size=TINY)
    model = config.build().eval()
    source, where = torch.randint(29, (3, 7)), Where.ragged([7, 4, 5])
    with torch.no_grad():
        memory = model.encode(source, where)
        out = greedy(model, torch.tensor([1, 2, 3]), Given(encoder_output=memory), 9)
        scores, _ = model(out[:, :-1], Where.run(3, 9).give(encoder_output=memory))
    assert torch.equal(scores.argmax(-1), out[:, 1:])


def test_beams_are_a_selection_of_rows() -> None:
    model = Decoder.Config(vocabulary=11, width=16, depth=2, mixer=Attention.Config(mask=Window(back=2))).build().eval()
    tokens = torch.randint(11, (2, 6))
    with torch.no_grad():
        _, state = model(tokens[:, :5], Where.run(2, 5), model.start(2))
        assert state is not None
        chosen = select(state, [1, 1, 0])
        assert isinstance(chosen, tuple)
        scores, _ = model(tokens[[1, 1, 0], 5:], Where.run(3, 1, start=5), chosen)
        whole, _ = model(tokens[[1, 1, 0]], Where.run(3, 6))
    # float32, two layers: a score of size one after some hundred roundings of 6e-8
    assert torch.allclose(scores[:, 0], whole[:, 5], rtol=0, atol=1e-5)


def test_the_declared_memory_is_the_memory_held() -> None:
    model = Decoder.Config(vocabulary=11, width=16, depth=3, mixer=Attention.Config(kv_heads=2)).build()
    with torch.no_grad():
        _, state = model(torch.zeros(2, 9, dtype=torch.long), Where.run(2, 9), model.start(2))
    assert nbytes(state) == 2 * price(model.spec(), 9) == 2 * 3 * 9 * (2 * 2 * 4 * 4 + 16)


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(("size", "million"), [(BASE, 63.1), (BIG, 214.2)])
def test_the_papers_sizes(size: Any, million: float) -> None:
    """Table 3 says 65 and 213 million with a vocabulary of about 37,000."""
    with torch.device("meta"):
        model = transformer(37_000, size=size).build()
    assert parameters(model) / 1e6 == pytest.approx(million, abs=0.1)


def test_the_paper_shares_one_table_and_the_variants_do_not() -> None:
    paper = transformer(29, size=TINY).build()
    table = sources(paper)
    assert paper.decoder.embeddings.table.weight is table
    assert paper.decoder.head.weight is table
    assert not any(name == "bias" for name, _ in paper.decoder.head.named_parameters())
    for variant in (TORCH, ANNOTATED):
        model = transformer(29, 29, size=TINY, variant=variant).build()
        assert model.decoder.head.weight is not model.decoder.embeddings.table.weight
        assert model.decoder.embeddings.table.weight is not sources(model)
    two = transformer(29, 31, size=TINY, variant=PAPER).build()
    assert two.decoder.head.weight is two.decoder.embeddings.table.weight
    assert sources(two).shape[0] == 29


def test_a_torch_encoder_layer_with_the_same_weights_gives_the_same() -> None:
    config = transformer(29, 29, size=TINY, variant=TORCH)
    model = config.encoder.build().eval().double()
    reference = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True).eval().double()
    block = model.stack.blocks[0]
    ours = block.state_dict()
    attention = torch.cat([ours[f"mixer.{name}.weight"] for name in ("query", "key", "value")])
    shift = torch.cat([ours[f"mixer.{name}.bias"] for name in ("query", "key", "value")])
    reference.load_state_dict(
        {
            "self_attn.in_proj_weight": attention,
            "self_attn.in_proj_bias": shift,
            "self_attn.out_proj.weight": ours["mixer.out.weight"],
            "self_attn.out_proj.bias": ours["mixer.out.bias"],
            "linear1.weight": ours["feedforward.up.weight"],
            "linear1.bias": ours["feedforward.up.bias"],
            "linear2.weight": ours["feedforward.down.weight"],
            "linear2.bias": ours["feedforward.down.bias"],
            "norm1.weight": ours["wiring.norms.0.weight"],
            "norm1.bias": ours["wiring.norms.0.bias"],
            "norm2.weight": ours["wiring.norms.1.weight"],
            "norm2.bias": ours["wiring.norms.1.bias"],
        }
    )
    x, where = torch.randn(2, 5, 128, dtype=torch.float64), Where.ragged([5, 3])
    with torch.no_grad():
        got, _ = block(x, where)
        wanted = reference(x, src_key_padding_mask=~where.real)
    assert torch.allclose(got[where.real], wanted[where.real], rtol=0, atol=1e-12)


def test_hybrids_tile_their_mixers_over_the_depth() -> None:
    near, far = Attention.Config(mask=Window(back=1)), Attention.Config()
    config = Decoder.Config(vocabulary=5, width=8, depth=5, mixer=(near, far))
    assert [config.mixer_of(layer) for layer in range(5)] == [near, far, near, far, near]
    assert Decoder.Config(vocabulary=5, width=8, depth=1, mixer=near).mixer == (near,)


def test_models_refuse_what_cannot_be() -> None:
    encoder = Encoder.Config(vocabulary=5, width=8, depth=1)
    decoder = Decoder.Config(vocabulary=6, width=8, depth=1, cross=Cross.Config())
    with pytest.raises(ConfigError, match="needs a cross-attention; set decoder.cross"):
        Seq2seq.Config(encoder=encoder, decoder=Decoder.Config(vocabulary=6, width=8, depth=1))
    with pytest.raises(ConfigError, match="a shared table needs one vocabulary, not 5 and 6"):
        Seq2seq.Config(encoder=encoder, decoder=decoder, shared=True)
    with pytest.raises(ConfigError, match="encoder width 16 and decoder width 8 must be equal"):
        Seq2seq.Config(encoder=encoder.model_copy(update={"width": 16}), decoder=decoder)
    with pytest.raises(ConfigError, match="width 10 does not divide into 4 heads"):
        Decoder.Config(vocabulary=5, width=10, depth=1).build()
    with pytest.raises(CannotStream, match="Encoder looks any number of tokens ahead"):
        encoder.build().start(1)


@pytest.mark.parametrize("vocabulary", [10**14, 2**62, 10**30])
def test_sizes_that_no_memory_holds_are_refused(vocabulary: int) -> None:
    with pytest.raises(ConfigError, match="make it smaller"):
        heed.build(Decoder.Config(vocabulary=vocabulary, width=8, depth=1))


def test_what_else_goes_wrong_while_building_is_not_about_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(config: object) -> None:
        raise RuntimeError("something else")

    monkeypatch.setattr(Decoder.Config, "build", fail)
    with pytest.raises(RuntimeError, match="something else"):
        heed.build(Decoder.Config(vocabulary=8, width=8, depth=1))


def test_build_is_public() -> None:
    assert isinstance(heed.build(Encoder.Config(vocabulary=5, width=8, depth=1)), Encoder)
