"""The five laws on loaded checkpoints: what is proven for fresh weights holds for other people's, too."""

from __future__ import annotations

import json

import pytest
import torch

from heed import weights
from heed.core.laws import LAWS, Law
from heed.models import AudioEncoder, Decoder, Embedded, Encoder, Seq2seq, familiar
from heed.weights import FAMILIES
from tests.weights.support import GOLDEN, TOLERANCES

TYPES = {name for family in FAMILIES for name in family.types}
BY_TYPE = {
    json.loads((GOLDEN / case / "config.json").read_text())["model_type"]: case
    for case in sorted(TOLERANCES)
    if "generate" not in case
}
LONG = ("big_bird/", "longformer/", "transfo-xl/", "xlnet/")  # whose folders hold different models
CASES = sorted(
    {case for name, case in BY_TYPE.items() if name in TYPES} | {case for case in TOLERANCES if case.startswith(LONG)}
)
TOKENS = {"big_bird": 38}  # of a text that is sparse; others need few
OTHERS = {"clip", "swin", "vit", "wav2vec2", "whisper"}  # no tokens at the front: their laws run in tests/models


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("case", [case for case in CASES if case.partition("/")[0] not in OTHERS])
def test_laws(case: str, law: Law) -> None:
    model = weights.load(GOLDEN / case).model.double()
    assert isinstance(model, Encoder | Decoder | Seq2seq)
    torch.manual_seed(0)
    finding = law(Embedded(model), familiar(model, tokens=TOKENS.get(case.partition("/")[0], 7)))
    assert finding.holds, finding


def test_only_models_without_tokens_are_left_out() -> None:
    for case in CASES:
        model = weights.load(GOLDEN / case).model
        tokens = isinstance(model, Encoder | Decoder | Seq2seq)
        heard = isinstance(model, Seq2seq) and isinstance(model.encoder, AudioEncoder)
        assert (case.partition("/")[0] in OTHERS) == (not tokens or heard), case
