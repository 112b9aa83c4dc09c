"""Names of the last release still work, with a warning: arguments, keys, kinds, classes, methods."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import heed
from heed.core.tables import renamed_arguments
from heed.decode import generate
from heed.mixers import Lsh
from heed.models import Decoder, transformer
from heed.models.architectures.transformer import TINY
from heed.models.stack import Stack
from heed.parts.layers.norms import LayerNorm


@renamed_arguments(limit="max_new_tokens")
def count(first: int, *, max_new_tokens: int = 1) -> int:
    return first + max_new_tokens


def test_an_old_argument_is_taken_for_the_new_one() -> None:
    old: Any = count
    with pytest.warns(DeprecationWarning, match="count: limit is called max_new_tokens now"):
        assert old(1, limit=5) == 6
    assert count(1, max_new_tokens=5) == 6
    with pytest.raises(TypeError, match="lmit"):
        old(1, lmit=5)


def test_generating_takes_its_old_arguments() -> None:
    model: Any = Decoder.Config(vocabulary=7, width=8, depth=1).build().eval()
    wanted = generate(model, [[1]], max_new_tokens=3, end=None)[0][0].tokens
    with pytest.warns(DeprecationWarning, match="limit is called max_new_tokens"):
        ((found,),) = generate(model, [[1]], limit=3, end=None)  # type: ignore[call-arg]
    assert found.tokens == wanted


def test_an_old_kind_and_an_old_key_are_read() -> None:
    with pytest.warns(DeprecationWarning, match="kind 'hashed' is called 'lsh' now"):
        stack = Stack.Config.load({"width": 8, "depth": 1, "mixer": {"kind": "hashed"}})
    assert stack.mixer == (Lsh.Config(),)
    with pytest.warns(DeprecationWarning, match="front_norm is called embedding_norm now"):
        decoder = Decoder.Config.load({"width": 8, "depth": 1, "front_norm": {"kind": "layernorm"}})
    assert decoder.embedding_norm == LayerNorm()


def test_an_old_class_is_found() -> None:
    with pytest.warns(DeprecationWarning, match=r"heed\.mixers\.Hashed is called heed\.mixers\.Lsh now"):
        assert heed.mixers.Hashed is Lsh  # type: ignore[attr-defined]
    with pytest.warns(DeprecationWarning, match=r"heed\.tasks\.Ask is called heed\.pipelines\.GenerationConfig now"):
        assert heed.tasks.Ask is heed.pipelines.GenerationConfig  # type: ignore[attr-defined]


def test_a_source_is_read_and_given_by_its_old_names() -> None:
    model = transformer(9, size=TINY).build().eval()
    source, where = torch.randint(9, (1, 4)), heed.Where.run(1, 4)
    with pytest.warns(DeprecationWarning, match=r"model\.read is called model\.encode now"):
        encoded = model.read(source, where)
    with pytest.warns(DeprecationWarning, match="is called encoder_output now"):
        assert heed.Given(memory=encoded).encoder_output is encoded
