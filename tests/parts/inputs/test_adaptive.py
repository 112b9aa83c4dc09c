"""Adaptive vocabularies against their equations: embeddings, log-probabilities, the loss that looks at few of them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import ConfigError, InputError
from heed.models import AdaptiveDecoder
from heed.parts.inputs.adaptive import Adaptive, AdaptiveEmbedding, AdaptiveSoftmax
from heed.parts.outputs.loss import NO_LABEL, cross_entropy, headed_cross_entropy

WIDTH, WORDS = 12, 17
CLUSTERS = {
    "three widths": Adaptive(cutoffs=(5, 9), shrink=2, tied=(False, True, True)),
    "from a narrow first": Adaptive(cutoffs=(5, 9), shrink=2, size=6, tied=(True, True, False)),
    "one width": Adaptive(cutoffs=(5, 9), shrink=1),
    "one width, projected": Adaptive(cutoffs=(5, 9), shrink=1, size=8, tied=(True, False, True)),
    "one cluster": Adaptive(),
    "one cluster, projected": Adaptive(shrink=1, size=20),
}
every = pytest.mark.parametrize("config", CLUSTERS.values(), ids=CLUSTERS)


def built(config: Adaptive, *, bias: bool = True, tied: bool = True) -> tuple[AdaptiveEmbedding, AdaptiveSoftmax]:
    torch.manual_seed(5)
    table = AdaptiveEmbedding(config, WORDS, WIDTH).double()
    scores = AdaptiveSoftmax(config, WORDS, WIDTH, bias=bias).double()
    scores.tie(table, weights=tied, projections=config.tied)
    for number in (scores.biases or ()) if bias else ():
        torch.nn.init.normal_(number)
    return table, scores


def cluster_of(config: Adaptive, word: int) -> tuple[int, int]:
    """Which cluster a word is of, and with which word that begins."""
    begins = [0, *config.cutoffs]
    cluster = max(number for number, begin in enumerate(begins) if word >= begin)
    return cluster, begins[cluster]


@every
def test_an_embedding_is_its_clusters_row_widened(config: Adaptive) -> None:
    table, _ = built(config)
    words = torch.randint(WORDS, (3, 7), generator=torch.Generator().manual_seed(0))
    made = table(words)
    assert made.shape == (3, 7, WIDTH)
    for row in range(3):
        for column in range(7):
            word = int(words[row, column])
            cluster, begin = cluster_of(config, word)
            number, place = (0, word) if config.shrink == 1 else (cluster, word - begin)
            vector = table.tables[number].weight[place]  # type: ignore[index]
            wide = table.widen[number] @ vector if len(table.widen) else vector
            assert torch.allclose(made[row, column], wide, rtol=0, atol=1e-14)


@every
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_log_probabilities_are_a_clusters_and_a_words_in_it(config: Adaptive, bias: bool, tied: bool) -> None:
    _, scores = built(config, bias=bias, tied=tied)
    x = torch.randn(WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    begins = [0, *config.cutoffs, WORDS]

    def score(cluster: int, word: int) -> Tensor:
        narrow = scores.narrow[cluster].T @ x if len(scores.narrow) else x
        number, place = (0, word) if config.shrink == 1 else (cluster, word - begins[cluster])
        return scores.weights[number][place] @ narrow + (scores.biases[number][place] if scores.biases else 0.0)

    first = [score(0, word) for word in range(begins[1])]
    if scores.tails is not None:
        first += scores.tails(scores.narrow[0].T @ x if len(scores.narrow) else x).unbind()
    head = torch.stack(first).log_softmax(0)
    wanted = list(head[: begins[1]])
    for cluster in range(1, config.clusters):
        tail = torch.stack([score(cluster, word) for word in range(begins[cluster], begins[cluster + 1])])
        wanted += (head[begins[1] + cluster - 1] + tail.log_softmax(0)).unbind()
    made = scores(x[None])[0]
    assert torch.allclose(made, torch.stack(wanted), rtol=0, atol=1e-13)
    assert made.exp().sum().item() == pytest.approx(1.0)


@every
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_cheap_loss_is_the_loss_of_all_log_probabilities(config: Adaptive, smoothing: float) -> None:
    """Values and gradients, some labels missing."""
    table, scores = built(config)
    stream = torch.randn(2, 9, WIDTH, dtype=torch.float64).requires_grad_()
    labels = torch.randint(WORDS, (2, 9))
    labels[0, :4] = NO_LABEL
    learnt = [stream, *scores.parameters()]
    slow = cross_entropy(scores(stream), labels, smoothing)
    fast = headed_cross_entropy(stream, scores, labels, smoothing)
    assert torch.allclose(fast.total, slow.total, rtol=1e-13, atol=0)
    assert torch.allclose(fast.nats, slow.nats, rtol=1e-13, atol=0)
    for a, b in zip(*(torch.autograd.grad(loss.total, learnt) for loss in (fast, slow)), strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-12)
    assert len(list(table.parameters())) > 0


def test_common_labels_do_not_look_at_rare_words(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = AdaptiveSoftmax(Adaptive(cutoffs=(10,), shrink=1), 10_000, WIDTH, bias=False)
    rows, inner = list[int](), scores._logits

    def counted(cluster: int, x: Tensor) -> Tensor:
        rows.append(len(x) if cluster else 0)
        return inner(cluster, x)

    monkeypatch.setattr(scores, "_logits", counted)
    stream = torch.randn(1, 50, WIDTH)
    labels = torch.randint(10, (1, 50))
    labels[0, 3] = 4321
    scores.nats(stream, labels)
    assert rows == [0, 1]
    assert torch.isfinite(scores.nats(stream, torch.full_like(labels, NO_LABEL)))


def test_a_table_has_fewer_numbers_than_a_plain_one() -> None:
    table = AdaptiveEmbedding(Adaptive(cutoffs=(20_000, 40_000), shrink=4), 200_000, 64)
    held = sum(parameter.numel() for parameter in table.parameters())
    assert held == 20_000 * 64 + 20_000 * 16 + 160_000 * 4 + 64 * (64 + 16 + 4)
    assert held < 0.2 * 200_000 * 64


def test_what_is_tied_is_one_tensor() -> None:
    config = CLUSTERS["three widths"]
    model = AdaptiveDecoder.Config(vocabulary=WORDS, width=WIDTH, depth=1, adaptive=config).build()
    table = model.embeddings.table
    assert isinstance(table, AdaptiveEmbedding)
    assert [model.head.weights[n] is table.tables[n].weight for n in range(3)] == [True] * 3
    assert [model.head.narrow[n] is table.widen[n] for n in range(3)] == [False, True, True]
    model = AdaptiveDecoder.Config(vocabulary=WORDS, width=WIDTH, depth=1, adaptive=config, tied=False).build()
    assert not any(weight is other for weight in model.head.weights for other in model.embeddings.parameters())


def test_unknown_words_are_refused() -> None:
    for config in CLUSTERS.values():
        model = AdaptiveDecoder.Config(vocabulary=WORDS, width=WIDTH, depth=1, adaptive=config).build()
        for word in (WORDS, -1):
            with pytest.raises(InputError, match=f"the vocabulary has {WORDS}"):
                model(torch.tensor([[3, word]]), Where.run(1, 2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"adaptive": {"cutoffs": [5, 5]}}, "cutoffs must ascend"),
        ({"adaptive": {"cutoffs": [9, 5]}}, "cutoffs must ascend"),
        ({"adaptive": {"cutoffs": [0]}}, "cutoffs"),
        ({"adaptive": {"cutoffs": [5], "tied": [True] * 3}}, "tied speaks of 3 clusters"),
        ({"adaptive": {"cutoffs": [WORDS]}}, f"the cutoff {WORDS} leaves nothing of a vocabulary of {WORDS}"),
        ({"adaptive": {"cutoffs": [5, 9], "shrink": 4}}, "12 channels shrunk 4-fold leave none after 2 clusters"),
        ({"adaptive": {"shrink": 0}}, "shrink"),
        ({"cap": 30.0}, "cap has no place beside an adaptive vocabulary"),
        ({"narrowed": True}, "narrowed has no place beside an adaptive vocabulary"),
        ({"narrow": {"size": 4}}, "narrow has no place beside an adaptive vocabulary"),
    ],
)
def test_impossible_vocabularies_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AdaptiveDecoder.Config.load({"vocabulary": WORDS, "width": WIDTH, "depth": 1, **options}).build()
