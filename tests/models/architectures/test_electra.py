"""ELECTRA: how large its halves are, and what they share."""

from __future__ import annotations

from heed.models import Electra


def test_the_generator_is_a_share_of_the_discriminator() -> None:
    """The paper's small model: a generator of a quarter of 256 channels."""
    plan = Electra(vocabulary=9, width=256, depth=1, heads=4)
    small, large = plan.generating(), plan.discriminating()
    assert (small.width, large.width) == (64, 256)
    model = plan.build()
    assert model.generator.embeddings.table is model.discriminator.embeddings.table
    for name in ("position", "segment", "norm"):
        assert getattr(model.generator.embeddings, name) is getattr(model.discriminator.embeddings, name)
