"""The decoder-only Transformer for long texts: what it is made of, and that thousands of tokens fit."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from heed.core.contract import Where
from heed.core.errors import ConfigError
from heed.core.laws import LAWS, Case, Law
from heed.core.spec import price
from heed.mixers import Attention, MemoryCompressed
from heed.models import Embedded, TransformerDecoder
from heed.parts.feedforward import Experts
from heed.parts.masks import Causal, Segments

TINY = TransformerDecoder(width=24, local=4)


def test_local_and_compressed_layers_take_turns() -> None:
    model = TransformerDecoder().sized(99).build()
    kinds = [type(block.mixer) for block in model.stack.layers]
    assert kinds == [Attention, MemoryCompressed, Attention, MemoryCompressed, Attention]
    local = model.stack.layers[0].mixer
    assert isinstance(local, Attention)
    assert local.mask == Causal() & Segments(length=256)
    assert (model.longest, model.config.tokens) == (None, 99)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("plan", [TINY, TINY.model_copy(update={"feedforward": (Experts.Config(),), "stride": 2})])
def test_law_holds(law: Law, plan: TransformerDecoder) -> None:
    torch.manual_seed(0)
    finding = law(Embedded(plan.sized(13).build()), Case.make(24, rows=2))
    assert finding.holds, finding


class Largest(TorchDispatchMode):
    """The most numbers that any tensor holds."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else (made,):
            if isinstance(tensor, torch.Tensor):
                self.numbers = max(self.numbers, tensor.untyped_storage().nbytes() // tensor.element_size())
        return made


@pytest.mark.skipif(torch.__version__.startswith("2.6."), reason="torch 2.6 has no fused form for its masks")
def test_four_thousand_tokens_are_learnt_from_without_a_table_of_pairs() -> None:
    tokens, width = 4000, 16
    model = TransformerDecoder(width=width, heads=2).sized(50).build()
    ids = torch.randint(50, (1, tokens))
    with Largest() as largest:
        logits, _ = model(ids, Where.run(1, tokens))
        loss = torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:])
        loss.backward()
    assert largest.numbers <= tokens * 1024  # local layers: a mask of 64 queries beside 320 keys for each block
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


def test_the_memory_is_that_of_the_blocks_and_a_third_of_the_text() -> None:
    spec = TransformerDecoder(width=16, heads=2, local=8).sized(50).build().spec()
    entry = 2 * 16 * 4 + 16
    assert price(spec, 3000) == 3 * 7 * entry + 2 * (1 + 1000 + 2) * entry


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="width 30 does not divide into 4 heads"):
        TransformerDecoder(width=30).sized(9).build()
    with pytest.raises(ConfigError, match="stride is 0"):
        TransformerDecoder(stride=0)
