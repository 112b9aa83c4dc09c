"""An encoder of spelled words: each token gets its word, from bytes to labels and back, trained by real tasks."""

from __future__ import annotations

import pytest
import torch

from heed.core.contract import Where
from heed.models import NGramEncoder
from heed.parts.inputs.ngrams import Words
from heed.tasks import Tag
from heed.text import Byte
from heed.text.kinds import framing
from tests.tasks.test_tasks import Some

CONFIG = NGramEncoder.Config(vocabulary=260, width=16, depth=1, buckets=256)
TEXTS = ("the cat  sat", "cat", "a\tcat\nthe")


def encoder() -> NGramEncoder:
    torch.manual_seed(0)
    return CONFIG.build().double().eval()


def test_bytes_of_white_space_and_frame_are_between() -> None:
    tokenizer = framing(Byte().train())
    ids = torch.tensor([tokenizer.framed("a b\tc\nd\re").ids])
    words = Words.of(ids, Where.run(*ids.shape), CONFIG.between)
    assert words.where.shape == (1, 5)
    assert [tokenizer.decode([index]) for index in ids[words.inside].tolist()] == list("abcde")


@torch.no_grad()
def test_every_token_of_a_word_has_the_same_stream() -> None:
    """And it is what the stack makes of the words, one after the other."""
    model, tokenizer = encoder(), framing(Byte().train())
    for text in TEXTS:
        ids = torch.tensor([tokenizer.framed(text).ids])
        where = Where.run(*ids.shape)
        words = Words.of(ids, where, CONFIG.between)
        stream = model(ids, where)[0]
        single = [
            model.embeddings.table(ids[0, words.inside[0] & (words.number[0] == number)])
            for number in range(words.where.shape[1])
        ]
        x = torch.stack([some.sum(0) / len(some) ** 0.5 for some in single])[None] + model.ngrams(ids, words)
        wanted = model.mix(x, words.where)[0]
        for place, number in enumerate(words.number[0].tolist()):
            assert torch.allclose(stream[0, place], wanted[0, number], rtol=1e-12)
        assert len(words.where.order[0]) == len(text.split())


@torch.no_grad()
def test_rows_side_by_side_are_rows_alone() -> None:
    model, tokenizer = encoder(), framing(Byte().train())
    rows = [tokenizer.framed(text).ids for text in (*TEXTS, " ", "")]
    width = max(map(len, rows))
    side = torch.tensor([[*row, *[77] * (width - len(row))] for row in rows])  # padding may hold anything
    together = model(side, Where.ragged(map(len, rows), width=width))[0]
    for row, ids in enumerate(rows):
        alone = model(torch.tensor([ids]), Where.run(1, len(ids)))[0]
        assert torch.allclose(together[row, : len(ids)], alone[0], atol=1e-12)


def test_it_has_no_state_and_refuses_sizes_that_are_none() -> None:
    model = encoder()
    assert not model.streams
    for sizes in ((), (1, 2), (3, 3)):
        with pytest.raises(ValueError, match="sizes are different numbers of 2 or more"):
            NGramEncoder.Config(vocabulary=9, width=8, depth=1, sizes=sizes)


def test_it_learns_what_suffixes_say() -> None:
    """Words that end with "ing" are verbs; those of the test have stems that were never seen."""
    stems = [one + two for one in "bcdfghlmnprst" for two in ("an", "or")]
    words = [(f"{stem}{end}", label) for stem in stems for end, label in (("ing", "V"), ("ness", "N"))]
    tokenizer, task = framing(Byte().train()), Tag(labels=("N", "V"), longest=64)
    torch.manual_seed(0)
    model = CONFIG.headed(task.head()).build()
    batch = task.batch(task.corpus(Some(*words[8:]), tokenizer).once())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(12):
        optimizer.zero_grad()
        task.loss(model, batch).total.backward()
        optimizer.step()
    pipeline = task.pipeline(model.eval(), tokenizer)
    found = [tagged.labels for tagged in pipeline.tag(words=[[word] for word, _ in words[:8]])]
    assert found == [[label] for _, label in words[:8]]
