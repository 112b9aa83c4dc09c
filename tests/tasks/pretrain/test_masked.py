"""Masked language modelling: what is hidden how often, what is predicted from what, and who can learn it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from heed.core.errors import ConfigError, InputError
from heed.models import Bert, Decoder, ElmoEncoder, Encoder, Funnel, NGramEncoder, Seq2seq, XLNetEncoder, transformer
from heed.parts.outputs.loss import NO_LABEL
from heed.pipelines import GenerationConfig
from heed.runs import Recipe, find
from heed.tasks import Batch, Item, MaskedTokens, TextTask
from heed.tasks.pretrain.documents import Documents
from heed.tasks.pretrain.masked import NEXT, Tally
from heed.text import Byte, Tokenizer
from heed.text.kinds import framing
from tests.tasks.pretrain.material import examples, texts, tokenizer, within
from tests.tasks.test_tasks import Some

FEW = Some(("The quick brown fox jumps over the lazy dog.",), ("Hello world. It is I.",), ("x y z",))


@pytest.fixture
def small() -> Tokenizer:
    return MaskedTokens().equip(Byte().train(["x"]))


def model_of(task: TextTask, known: Tokenizer, plan: Any = None) -> Any:
    torch.manual_seed(0)
    head = task.head()
    assert head is not None
    shape = (plan or Encoder.Config(width=16, depth=2)).sized(known.size).headed(head)
    return shape.build().double().eval()


def drawn(task: MaskedTokens, kind: str = "bpe", rounds: int = 1) -> tuple[Tokenizer, list[Item], Batch]:
    """More than 100,000 tokens of it, as they are learnt from."""
    known = task.equip(tokenizer(kind))
    corpus = task.corpus(examples(), known)
    items = [item for number in range(rounds) for item in corpus.round(number, 7)]
    return known, items, task.batch(items)


@pytest.mark.parametrize("whole", [False, True])
def test_fifteen_percent_are_hidden_and_eighty_ten_ten_of_them_are_read_otherwise(whole: bool) -> None:
    """The count of a text is exact: 15 % of it, rounded. What stands instead is drawn token by token."""
    known, items, batch = drawn(MaskedTokens(whole_words=whole))
    own = np.array([int((order >= 0).sum()) for _, order, *_ in items])
    asked, read = batch.labels != NO_LABEL, batch.inputs.tokens[..., 0]
    each = asked.sum(1).numpy()
    assert own.sum() > 100_000
    assert batch.tokens == int(asked.sum()) == each.sum()
    budget = np.maximum(1, np.round(0.15 * own))
    if whole:  # the last words may not fit, and a text of long words hides one of them
        assert ((each <= budget) | (budget < 4)).all()
        assert abs(each.sum() / budget.sum() - 1) < 0.02
    else:
        assert (each == budget).all()
    count, hidden, labels = batch.tokens, read[asked], batch.labels[asked]
    assert known.mask is not None
    masked = hidden == known.mask
    same = hidden == labels
    assert within(float(masked.float().mean()), 0.8, count)
    chance = 0.1 / len(known.usual())  # that any token is the very one
    assert within(float(same.float().mean()), 0.1 + chance, count)
    others = hidden[~masked & ~same]
    assert within(len(others) / count, 0.1 - chance, count)
    assert set(others.tolist()) <= set(known.usual())
    assert len(set(others.tolist())) > 0.9 * len(known.usual())  # any of them
    assert torch.equal(read[~asked & (batch.inputs.where.order >= 0)], original(items)[~asked.flatten()[real(batch)]])


def real(batch: Batch) -> Any:
    return (batch.inputs.where.order >= 0).flatten()


def original(items: list[Item]) -> Any:
    return torch.from_numpy(np.concatenate([fields[:, 0] for fields, *_ in items]).astype(np.int64))


def test_every_place_is_hidden_as_often_as_any_other() -> None:
    _, items, batch = drawn(MaskedTokens(context=32))
    full = [row for row, item in enumerate(items) if len(item[0]) == 32]
    share = (batch.labels[full] != NO_LABEL).double().mean(0)
    assert share[0] == share[31] == 0  # the frame
    wanted = round(0.15 * 30) / 30
    assert all(within(float(one), wanted, len(full)) for one in share[1:31])


def test_words_are_hidden_as_wholes() -> None:
    known, items, batch = drawn(MaskedTokens(whole_words=True))
    several = 0
    for row, (fields, *_) in enumerate(items[:300]):
        ids, asked = fields[1:-1, 0], (batch.labels[row, 1 : len(fields) - 1] != NO_LABEL).numpy()
        begins = np.array(known.words(ids))
        begins[0] = True
        word = np.cumsum(begins) - 1
        hidden = [set(asked[word == one].tolist()) for one in set(word.tolist())]
        assert all(len(one) == 1 for one in hidden)
        several += sum(1 for one in set(word[asked].tolist()) if (word == one).sum() > 1)
    assert several > 100  # some words are of several tokens


def test_what_is_hidden_follows_from_round_and_seed() -> None:
    known = MaskedTokens().equip(tokenizer())
    corpus = MaskedTokens().corpus(examples(20), known)

    def plain(number: int, seed: int) -> list[Any]:
        return [[part.tolist() for part in item] for item in corpus.round(number, seed)]

    assert plain(2, 7) == plain(2, 7)
    assert plain(2, 7) != plain(3, 7)
    assert plain(2, 7) != plain(2, 8)
    evaluated = [[part.tolist() for part in item] for item in corpus.once()]
    assert evaluated == [[part.tolist() for part in item] for item in corpus.once()]
    total = sum(len(item[0]) - 2 for item in corpus.round(4, 4))
    assert total == sum(len(known.encode(text)) for text in texts()[:20])  # nothing is lost, nothing comes twice


def test_the_share_goes_along_a_line() -> None:
    task = MaskedTokens(rate=0.1, first_rate=0.5, context=402)
    assert [task.at(progress).rate for progress in (0.0, 0.5, 1.0)] == pytest.approx([0.5, 0.3, 0.1])
    known = task.equip(tokenizer())
    items = [item for item in task.corpus(examples(40), known).round(0, 0) if len(item[0]) == 402]
    assert items
    counts = {progress: task.at(progress).batch(items).tokens for progress in (0.0, 0.5, 1.0)}
    assert counts == {0.0: 200 * len(items), 0.5: 120 * len(items), 1.0: 40 * len(items)}
    assert task.batch(items).tokens == counts[1.0]
    early, late = (task.at(progress).batch(items).labels != NO_LABEL for progress in (0.0, 1.0))
    assert bool((early | ~late).all())  # what is hidden late would have been hidden early
    assert MaskedTokens().at(0.3) == MaskedTokens()


def test_half_of_all_pairs_belong_together() -> None:
    task = MaskedTokens(next_sentence=True, context=64)
    known, items, batch = drawn(task, rounds=2)
    assert sum(len(item[0]) for item in items) > 100_000
    assert batch.beside is not None
    assert batch.asides == len(items)
    assert within(float(batch.beside.double().mean()), 0.5, len(items))
    whole = [known.encode(text) for text in texts()]
    spelt = [f" {' '.join(map(str, ids))} " for ids in whole]
    for (fields, *_), other in zip(items[:400], batch.beside[:400].tolist(), strict=True):
        ids, segments = fields[:, 0], fields[:, 1]
        assert len(ids) <= 64
        assert sorted(segments.tolist()) == segments.tolist()
        end = int((segments == 0).sum())
        assert [ids[0], ids[end - 1], ids[-1]] == [known.begin, known.end, known.end]
        one, two = ids[1 : end - 1].tolist(), ids[end:-1].tolist()
        assert one
        assert two
        if min(len(one), len(two)) < 3:  # so few may stand anywhere by chance
            continue
        together = f" {' '.join(map(str, one + two))} "
        assert NEXT[other] == ("follows" if any(together in text for text in spelt) else "other")


def test_accuracy_is_a_percentage() -> None:
    tally = Tally()
    tally.add(torch.eye(4), torch.tensor([0, 1, 2, 0]))
    assert (tally.accuracy, tally.count) == (75, 4)


def test_a_text_of_which_nothing_is_known_is_no_document() -> None:
    class Letters:
        """Knows digits alone, and has nothing for other letters."""

        def encode_all(self, texts: list[str]) -> list[list[int]]:
            return [[int(letter) for letter in text if letter.isdigit()] for text in texts]

    tokenizer: Any = Letters()
    documents = Documents.of(["12", "what", "345"], tokenizer)
    assert (len(documents), documents.bounds.tolist()) == (2, [0, 2, 5])


def test_other_texts_are_of_other_documents() -> None:
    documents = Documents.of(texts()[:3], tokenizer(), cut=True)
    drawn, others = np.random.default_rng(0), set[tuple[int, int]]()
    for _ in range(5):
        for one, other, follows in documents.pairs(64, drawn):
            numbers = [int(np.searchsorted(documents.bounds, part.start, "right")) for part in (one, other)]
            assert (numbers[0] == numbers[1]) == follows
            others |= {(numbers[0], numbers[1])} if not follows else set()
    assert others == {(a, b) for a in (1, 2, 3) for b in (1, 2, 3) if a != b}


def test_pairs_of_a_single_text_and_of_too_little() -> None:
    task = MaskedTokens(next_sentence=True, context=32)
    known = task.equip(tokenizer())
    items = task.corpus(examples(1), known).round(0, 0)
    assert {int(item[3][0]) for item in items} == {0, 1}
    little = Documents.of(["One. Two."], known, cut=True)
    with pytest.raises(InputError, match="too short to tell its next sentence.*task.next_sentence=false"):
        [list(little.pairs(100, np.random.default_rng(seed))) for seed in range(64)]


@pytest.mark.parametrize("after", [False, True])
def test_a_batch_loses_what_its_rows_lose_alone_and_every_weight_learns(after: bool, small: Tokenizer) -> None:
    task = MaskedTokens(context=24, next_sentence=after)
    plan = Bert(width=16, depth=1, dropout=0.0)
    model, items = model_of(task, small, plan), task.corpus(FEW, small).once()
    assert len({len(item[0]) for item in items}) > 1  # some row is padded
    batch = task.batch(items)
    together = task.loss(model, batch)
    alone = [task.loss(model, task.batch([item])) for item in items]
    assert float(together.nats) == pytest.approx(sum(float(one.nats) for one in alone), rel=1e-12)
    total = together.total
    if after:
        assert together.beside is not None
        besides = [one.beside for one in alone if one.beside is not None]
        assert together.beside.item() == pytest.approx(sum(one.item() for one in besides), rel=1e-12)
        total = total + together.beside
    total.backward()
    still = [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert still == []
    nothing = task.loss(model, batch.silent())
    assert not nothing.total.any()
    assert nothing.beside is None or not nothing.beside.any()
    assert batch.silent().asides == 0


PLANS = {
    "bert": Bert(width=16, depth=1),
    "encoder": Encoder.Config(width=16, depth=1),
    "funnel": Funnel.Config(width=16),
    "xlnet_encoder": XLNetEncoder.Config(width=16, depth=1),
    "elmo_encoder": ElmoEncoder.Config(width=16, depth=1),
    "ngram_encoder": NGramEncoder.Config(width=16, depth=1, buckets=32),
}


@pytest.mark.parametrize("kind", PLANS)
def test_every_encoder_can_be_asked(kind: str, small: Tokenizer) -> None:
    """And what it says of a hidden token depends on both sides of it."""
    task = MaskedTokens(context=20)
    model = model_of(task, small, PLANS[kind])
    task.must_fit(model)
    batch = task.batch(task.corpus(FEW, small).once())
    loss = task.loss(model, batch)
    loss.total.backward()
    assert float(loss.nats) > 0
    frozen = {name for name, weight in model.named_parameters() if not weight.requires_grad}
    still = {name for name, weight in model.named_parameters() if weight.grad is None}
    assert still <= frozen


def test_models_that_do_not_fit_are_told_what_does(small: Tokenizer) -> None:
    task = MaskedTokens()
    with pytest.raises(ConfigError, match="Decoder does not; use model.kind=encoder.*learns by task.kind=causal"):
        task.must_fit(model_of(task, small, Decoder.Config(width=16, depth=1)))
    with pytest.raises(ConfigError, match="no head.*task.kind=denoise|cannot be given a head.*task.kind=denoise"):
        Seq2seq.Config.headed(transformer(9), task.head())
    short = Bert(width=16, depth=1, length=64)
    with pytest.raises(
        ConfigError, match="task.context is 128 tokens, the model has places for 64; set task.context=64"
    ):
        task.must_fit(model_of(task, small, short))
    narrow = Funnel.Config(width=16, upper=0)
    with pytest.raises(ConfigError, match="a hidden state for every token.*model.upper=1"):
        task.loss(model_of(task, small, narrow), task.batch(task.corpus(FEW, small).once()))
    with pytest.raises(ConfigError, match="at most 1 together"):
        MaskedTokens(masked=0.8, random=0.3)
    with pytest.raises(ConfigError, match="task.context is 3; the frame alone takes 2"):
        MaskedTokens(context=3).corpus(FEW, small)
    with pytest.raises(InputError, match="nothing is left to learn from"):
        task.corpus(Some(("  ",)), small)
    with pytest.raises(InputError, match="has no mask token"):
        task.corpus(FEW, framing(Byte().train(["x"])))


def test_in_use(small: Tokenizer) -> None:
    task = MaskedTokens(context=24, next_sentence=True)
    pipeline = task.pipeline(model_of(task, small, Bert(width=16, depth=1)).float(), small)
    assert {"fill", "embed"} <= set(pipeline.can)
    ((best, *_),) = pipeline.fill("the qu<mask>ck fox")
    assert best.probability > 0
    assert set(pipeline.respond("the qu<mask>ck fox").data) == {"masks"}
    found = task.evaluate(pipeline, FEW)
    assert found == task.evaluate(pipeline, FEW)
    assert found["loss"] == pytest.approx(float(found["masked_loss"]) + float(found["next_loss"]))
    assert float(found["perplexity"]) == pytest.approx(float(np.exp(float(found["masked_loss"]))))
    assert 0 <= float(found["accuracy"]) <= 100
    with pytest.raises(InputError, match="nothing is generated"):
        task.evaluate(pipeline, FEW, GenerationConfig())
    plain = MaskedTokens(context=24)
    assert set(plain.evaluate(plain.pipeline(pipeline.model, small), FEW)) == {
        "loss",
        "perplexity",
        "accuracy",
        "tokens",
    }


@pytest.mark.parametrize("name", ["masked", "bert", "denoise", "t5", "electra"])
def test_recipes_fit_their_models(name: str) -> None:
    recipe = Recipe.read(find(name))
    known = recipe.task.equip(tokenizer())
    model = recipe.build(known.size)
    recipe.task.must_fit(model)  # raises otherwise
    assert known.size in {len(table) for table in model.parameters()}
