"""Truncation keeps exactly the right sets, draws follow their probabilities, repetition is penalised."""

from __future__ import annotations

from math import exp

import pytest
import torch
from torch import Tensor

from heed.core.errors import ConfigError
from heed.decode import Greedy, Sample, generate
from heed.decode.sampling import RandomSampler, Repetition
from heed.engine import SamplingSettings
from tests.decode.support import Script, favour

SETTINGS = [
    Sample(),
    Sample(temperature=0.3),
    Sample(top_k=1),
    Sample(top_k=5),
    Sample(top_k=99),
    Sample(top_p=0.01),
    Sample(top_p=0.6),
    Sample(top_p=1.0),
    Sample(min_p=0.3),
    Sample(min_p=1.0),
    Sample(top_k=6, top_p=0.7),
    Sample(temperature=1.7, top_k=7, top_p=0.9, min_p=0.2),
]


def written_out(how: Sample, scores: list[float]) -> dict[int, float]:
    """The probabilities of what is kept: the definitions, with lists and sorting."""
    weight = {token: exp(score / how.temperature) for token, score in enumerate(scores)}
    if how.top_k is not None:
        least = sorted(weight.values(), reverse=True)[: how.top_k][-1]
        weight = {token: w for token, w in weight.items() if w >= least}
    total, so_far, least = sum(weight.values()), 0.0, 0.0
    if how.top_p is not None and how.top_p < 1:
        for w in sorted(weight.values(), reverse=True):
            so_far, least = so_far + w, w
            if so_far / total >= how.top_p:
                break
        weight = {token: w for token, w in weight.items() if w >= least}
    if how.min_p is not None:
        weight = {token: w for token, w in weight.items() if w >= how.min_p * max(weight.values())}
    return {token: w / sum(weight.values()) for token, w in weight.items()}


def weigh(how: Sample, scores: Tensor) -> Tensor:
    """Over the whole vocabulary."""
    weights, tokens = how.weigh(scores)
    return torch.zeros_like(scores, dtype=torch.float64).scatter(1, tokens, weights)


def probabilities(how: Sample, scores: Tensor) -> Tensor:
    weights = weigh(how, scores)
    return weights / weights.sum(1, keepdim=True)


@pytest.mark.parametrize("how", SETTINGS, ids=repr)
def test_what_is_kept_is_what_the_definitions_say(how: Sample) -> None:
    scores = 2 * torch.randn(50, 12, dtype=torch.float64)
    for row, found in zip(scores, probabilities(how, scores), strict=True):
        wanted = written_out(how, row.tolist())
        assert found.nonzero()[:, 0].tolist() == sorted(wanted)
        for token, probability in wanted.items():
            assert float(found[token]) == pytest.approx(probability, rel=1e-9)


@pytest.mark.parametrize("how", [Sample(top_k=2), Sample(top_p=0.5), Sample(min_p=0.5)], ids=repr)
def test_equal_scores_are_kept_or_cut_together(how: Sample) -> None:
    """Weights 8, 4, 4, 4, 1: the second place is shared by three."""
    scores = torch.tensor([[4.0, 8.0, 4.0, 1.0, 4.0]], dtype=torch.float64).log()
    assert weigh(how, scores).nonzero()[:, 1].tolist() == [0, 1, 2, 4]


def test_equal_scores_of_one_row_do_not_change_another() -> None:
    scores = torch.tensor([[4.0, 8.0, 4.0, 1.0, 4.0], [5.0, 4.0, 3.0, 2.0, 1.0]], dtype=torch.float64)
    kept = weigh(Sample(top_k=2), scores) > 0
    assert [row.nonzero()[:, 0].tolist() for row in kept] == [[0, 1, 2, 4], [0, 1]]


def test_the_least_and_the_largest_draw_choose_a_token_that_was_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = torch.tensor([[-torch.inf, 0.1, -torch.inf, 0.3, -torch.inf]])
    for number, token in ((0.0, 1), (1 - 2.0**-53, 3)):
        draw = RandomSampler(Sample(), [0])
        monkeypatch.setattr(draw, "_uniform", lambda number=number: torch.tensor([[number]], dtype=torch.float64))
        assert draw(scores).tolist() == [token]


def test_the_smallest_set_that_has_the_probability() -> None:
    scores = torch.tensor([[0.25, 0.5, 0.25]], dtype=torch.float64).log()
    assert weigh(Sample(top_p=0.5), scores).nonzero()[:, 1].tolist() == [1]
    assert weigh(Sample(top_p=0.51), scores).nonzero()[:, 1].tolist() == [0, 1, 2]


def test_a_share_that_few_tokens_do_not_have() -> None:
    """A flat row needs most of a large vocabulary, a steep one a single token; neither changes the other."""
    scores = torch.stack((0.01 * torch.randn(1000), 9 * torch.randn(1000))).double()
    how = Sample(top_p=0.8)
    both = probabilities(how, scores)
    for row in range(2):
        assert torch.equal(both[row : row + 1], probabilities(how, scores[row : row + 1]))
        assert both[row].nonzero()[:, 0].tolist() == sorted(written_out(how, scores[row].tolist()))
    assert (both > 0).sum(1).tolist()[0] > 700
    assert (both > 0).sum(1).tolist()[1] < 20


def test_forbidden_tokens_have_no_part_in_it() -> None:
    scores = torch.tensor([[1.0, -torch.inf, 0.0, -torch.inf]])
    for how in (Sample(), Sample(top_k=3), Sample(top_p=0.999), Sample(min_p=1e-9)):
        assert weigh(how, scores).nonzero()[:, 1].tolist() == [0, 2]


def test_draws_follow_the_probabilities() -> None:
    """χ² of 20,000 rows, each with its own seed: also says that neighbouring seeds draw independently."""
    how = Sample(temperature=1.5, top_k=6)
    scores = torch.randn(1, 9, dtype=torch.float64)
    wanted = probabilities(how, scores)[0]
    tokens = RandomSampler(how, range(20_000))(scores.expand(20_000, -1).contiguous())
    counts = torch.bincount(tokens, minlength=9)
    kept = wanted > 0
    assert not counts[~kept].any()
    expected = 20_000 * wanted[kept]
    assert float(((counts[kept] - expected) ** 2 / expected).sum()) < 20.5  # 5 degrees of freedom, p = 0.001


def test_later_draws_follow_the_probabilities_too() -> None:
    how, scores = Sample(), torch.tensor([[0.1, 0.2, 0.3, 0.4]], dtype=torch.float64).log()
    draw = RandomSampler(how, [7])
    counts = torch.bincount(torch.cat([draw(scores) for _ in range(4000)]), minlength=4)
    expected = 4000 * scores.exp()[0]
    assert float(((counts - expected) ** 2 / expected).sum()) < 16.3  # 3 degrees of freedom, p = 0.001


def test_rows_that_go_on_keep_their_own_draws() -> None:
    scores = torch.zeros(4, 1000, dtype=torch.float64)
    whole, part = RandomSampler(Sample(), range(4)), RandomSampler(Sample(), range(4))
    first = [whole(scores) for _ in range(100)]
    for step in range(100):
        if step == 30:
            part.select([3, 1])
        rows = [0, 1, 2, 3] if step < 30 else [3, 1]
        assert torch.equal(part(scores[rows]), first[step][rows])


def test_draws_are_the_same_however_many_are_asked_for_at_once() -> None:
    """A burst is given more numbers than it uses; those that are left serve the next one, also across blocks."""
    plain, burst = RandomSampler(Sample(), [3, 8]), RandomSampler(Sample(), [3, 8])
    one_by_one = torch.cat([plain._uniform() for _ in range(200)], 1)  # [R, n]
    live, none = torch.ones(2, dtype=torch.bool), torch.empty(0, dtype=torch.int64)
    used = 0
    for most, taken in ((16, 16), (40, 3), (64, 20), (50, 50), (70, 1), (64, 64)):
        draws = burst.settings(SamplingSettings(live, 1, none), most).draws
        assert draws is not None
        assert torch.equal(draws.T, one_by_one[:, used : used + most])
        burst.used(taken)
        used += taken


def test_every_row_has_a_generator_of_its_own_which_is_that_of_its_seed() -> None:
    scores = torch.zeros(3, 1000, dtype=torch.float64)
    together = Sample(seed=5).start(3)(scores).tolist()
    assert together == [int(Sample(seed=5 + row).start(1)(scores[:1])) for row in range(3)]
    assert len(set(together)) == 3


def test_repetition_divides_what_is_positive_and_multiplies_what_is_negative() -> None:
    scores = torch.tensor([[2.0, -2.0, 4.0, -4.0, 0.0]] * 2)
    penalty = Repetition(2.0, [[0, 3], [1]])
    assert penalty(scores).tolist() == [[1.0, -2.0, 4.0, -8.0, 0.0], [2.0, -4.0, 4.0, -4.0, 0.0]]
    penalty.add(torch.tensor([2, 0]))
    assert penalty(scores).tolist() == [[1.0, -2.0, 2.0, -8.0, 0.0], [1.0, -4.0, 4.0, -4.0, 0.0]]
    penalty.select([1])
    assert penalty(scores[1:]).tolist() == [[1.0, -4.0, 4.0, -4.0, 0.0]]


def test_repetition_comes_first_and_does_not_change_the_score() -> None:
    """Token 1 was seen: its score 3 counts as 1.5, so 2 with 2 wins; log p is that of the model."""
    model = Script(lambda *_: favour(4, t1=3.0, t2=2.0))
    (plain,) = generate(model, [[1]], max_new_tokens=1, end=None)[0]
    (other,) = generate(model, [[1]], strategy=Greedy(repetition=2.0), max_new_tokens=1, end=None)[0]
    (drawn,) = generate(
        model, [[1]], strategy=Sample(repetition=2.0, top_k=1, temperature=9.0), max_new_tokens=1, end=None
    )[0]
    assert (plain.tokens, other.tokens, drawn.tokens) == ((1,), (2,), (2,))
    wanted = torch.tensor([0.0, 3.0, 2.0, 0.0]).log_softmax(0)[2]
    assert other.score == drawn.score == pytest.approx(float(wanted))


def test_repetition_remembers_the_whole_row_while_others_leave() -> None:
    """Positive scores and a strong penalty: every token is written once, in the order of the scores."""
    model = Script(lambda *_: [4.0, 9.0, 8.0, 7.0, 6.0, 5.0])
    answers = generate(model, [[2], [1, 3], [5, 4, 3]], strategy=Greedy(repetition=1e9), max_new_tokens=3, end=5)
    assert [w.tokens for (w,) in answers] == [(1, 3, 4), (2, 4), (1, 2, 0)]


@pytest.mark.parametrize("given", [{"repetition": 1e-45}, {"repetition": 1e39}, {"temperature": float("inf")}])
def test_settings_that_make_logits_infinite_are_refused(given: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(given))):
        Sample.load({"kind": "sample", **given})
