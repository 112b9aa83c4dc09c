"""heed.attend in other people's code: is_causal, both layouts, and the errors that teach."""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import heed
from heed.core.contract import Where
from heed.core.errors import InputError, LayoutWarning
from heed.parts.masks import MASKS, Causal, Window

Three = tuple[Tensor, Tensor, Tensor]


def three(rows: int = 2, tokens: int = 9, heads: int = 4, kv_heads: int = 4, keys: int | None = None) -> Three:
    """[B, T, H, d]"""
    draw = torch.Generator().manual_seed(0)
    sizes = ((tokens, heads), (keys or tokens, kv_heads), (keys or tokens, kv_heads))
    query, key, value = (torch.randn(rows, *size, 6, generator=draw, dtype=torch.float64) for size in sizes)
    return query, key, value


def swapped(given: Three) -> Three:
    query, key, value = (x.transpose(1, 2) for x in given)
    return query, key, value


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("is_causal", [False, True])
def test_both_layouts_give_what_sdpa_gives(kv_heads: int, is_causal: bool) -> None:
    given = three(kv_heads=kv_heads)
    theirs = F.scaled_dot_product_attention(*swapped(given), is_causal=is_causal, enable_gqa=True)
    assert torch.allclose(heed.attend(*given, is_causal=is_causal).transpose(1, 2), theirs, atol=1e-12, rtol=0)
    ours = heed.attend(*swapped(given), is_causal=is_causal, layout="bhtd")
    assert torch.allclose(ours, theirs, atol=1e-12, rtol=0)


def test_is_causal_stands_beside_any_sight() -> None:
    given, order = three(), torch.arange(9)
    near = Window(back=2, ahead=2)
    whole = Where.run(2, 9)
    visible = ((order[:, None] - order).abs() <= 2)[None, None]
    wanted = heed.attend(*given, Window(back=2))
    for sight in (near, near(whole, whole), visible):
        assert torch.allclose(heed.attend(*given, sight, is_causal=True), wanted, atol=1e-12, rtol=0)


def test_a_causal_triangle_that_is_not_square_must_be_named() -> None:
    given = three(tokens=3, keys=9, heads=2, kv_heads=2)
    with pytest.raises(InputError, match=r"3 queries and 9 keys has two meanings.*Causal\(\)"):
        heed.attend(*given, is_causal=True)
    last = heed.attend(*given, Causal())
    visible = torch.ones(3, 9, dtype=torch.bool).tril(6)[None, None]
    assert torch.allclose(last, heed.attend(*given, visible), atol=1e-12, rtol=0)


def test_the_other_layout_is_asked_about() -> None:
    given = swapped(three(tokens=16, heads=4))
    with pytest.warns(LayoutWarning, match=r"read as 4 tokens of 16 heads; say layout=\"bhtd\".*layout=\"bthd\""):
        heed.attend(*given)


@pytest.mark.parametrize("layout", ["bthd", "bhtd"])
def test_a_named_layout_is_not_asked_about(layout: Any) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        heed.attend(*three(tokens=4, heads=16, kv_heads=16), layout=layout)
    assert not told


@pytest.mark.parametrize("tokens", [1, 2, 7])
def test_decoding_is_not_asked_about(tokens: int) -> None:
    """A query after a cache, a first token, tokens beside more keys than heads, grouped keys."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        heed.attend(*three(tokens=tokens, heads=8, kv_heads=8, keys=20), Causal())
        heed.attend(*three(tokens=1, heads=8, kv_heads=8, keys=tokens), Causal())
        heed.attend(*three(tokens=tokens, heads=8, kv_heads=1))
    assert not told


def test_mixers_are_never_asked() -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        heed.mixers.Attention.Config(heads=8).build(16)(torch.randn(2, 3, 16))
    assert not told


SWAPPED: dict[str, tuple[Three, Any]] = {
    "a step of decoding": (swapped(three(tokens=1, keys=9)), None),
    "other keys": (swapped(three(tokens=5, keys=9)), None),
    "a mask tensor": (swapped(three(tokens=3, heads=4)), torch.ones(1, 1, 3, 3, dtype=torch.bool)),
    "grouped heads": (swapped(three(tokens=3, heads=4, kv_heads=2)), Causal()),
}


@pytest.mark.filterwarnings("ignore::heed.core.errors.LayoutWarning")
@pytest.mark.parametrize("case", SWAPPED)
def test_an_error_says_when_only_the_other_layout_fits(case: str) -> None:
    given, sight = SWAPPED[case]
    with pytest.raises(InputError, match=r"say layout=\"bhtd\" if they are \[rows, heads, tokens, size\]"):
        heed.attend(*given, sight)
    heed.attend(*given, sight, layout="bhtd")


def test_no_layout_is_proposed_that_does_not_fit_either() -> None:
    query, key, value = three()
    with pytest.raises(InputError, match="do not fit") as caught:
        heed.attend(query, key[..., :5], value)
    assert "bhtd" not in str(caught.value)
    with pytest.raises(InputError, match=r"needs \[rows, tokens, heads, size\]"):
        heed.attend(query[0], key[0], value[0])


@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: mask.__name__)
def test_the_name_of_a_mask_is_told_the_mask(mask: Any) -> None:
    kind = mask.model_fields["kind"].default
    for wrong in (kind, mask):
        with pytest.raises(InputError, match=rf"write {mask.__name__}\("):
            heed.attend(*three(), wrong)


def test_causal_is_told_both_spellings_and_typos_are_guessed() -> None:
    with pytest.raises(InputError, match=re.escape("Causal() (from heed.parts.masks), or is_causal=True")):
        heed.attend(*three(), "causal")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'casual' is not a mask; did you mean causal"):
        heed.attend(*three(), "casual")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="not by a bool"):
        heed.attend(*three(), True)  # type: ignore[arg-type]


THEIRS = {
    "attn_mask": "a boolean mask goes to sight=",
    "dropout_p": "it is called dropout here",
    "enable_gqa": "leave it out",
    "mask": "it is the fourth argument, sight",
    "dropuot": "did you mean dropout",
}


@pytest.mark.parametrize("name", THEIRS)
def test_names_of_others_are_told_what_heed_calls_them(name: str) -> None:
    with pytest.raises(InputError, match=f"attend has no {name}.*{THEIRS[name]}"):
        heed.attend(*three(), **{name: True})  # type: ignore[arg-type]


def test_an_unknown_layout_is_named() -> None:
    with pytest.raises(InputError, match="not 'bhdt'"):
        heed.attend(*three(), layout="bhdt")  # type: ignore[arg-type]
