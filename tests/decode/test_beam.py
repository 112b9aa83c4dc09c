"""Beam search against an exhaustive one, and against its specification: no cache, no batch, lists and sorting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from heed.decode import Beam, Generated, generate
from heed.decode.beam import Complete
from tests.decode.support import END, SUBJECTS, Script, Subject, counting, decoder, favour

Hypothesis = tuple[float, tuple[int, ...]]
subjects = pytest.mark.parametrize("subject", SUBJECTS, ids=lambda make: make.__name__)


def grown(subject: Subject, hypothesis: Hypothesis) -> Iterator[Hypothesis]:
    score, tokens = hypothesis
    logprobs = subject.scores((*subject.prompts[0], *tokens)).log_softmax(0).tolist()
    return ((score + logprob, (*tokens, token)) for token, logprob in enumerate(logprobs))


def written_out(subject: Subject, how: Beam, limit: int, ends: set[int]) -> list[Hypothesis]:
    """The specification, for one prompt; without `early` it never stops before the limit. Of complete hypotheses that
    differ in their end alone, the better one counts.
    """
    live: list[Hypothesis] = [(0.0, ())]
    done: list[Hypothesis] = []
    for length in range(1, limit + 1):
        candidates = sorted((new for old in live for new in grown(subject, old)), key=lambda h: -h[0])
        likely = candidates[: how.beams]
        done += [h for h in likely if h[1][-1] in ends or length == limit]
        live = [h for h in candidates if h[1][-1] not in ends][: how.beams]
        done = different(sorted(done, key=lambda h: -h[0] / len(h[1]) ** how.length_penalty), ends)[: how.beams]
        if how.early and len(done) == how.beams:
            break
    return done[: how.best]


def different(done: list[Hypothesis], ends: set[int]) -> list[Hypothesis]:
    first = {tuple(token for token in tokens if token not in ends): (score, tokens) for score, tokens in done[::-1]}
    return [hypothesis for hypothesis in done if hypothesis in first.values()]


def exhaustive(subject: Subject, limit: int, end: int, begin: Hypothesis = (0.0, ())) -> Iterator[Hypothesis]:
    for new in grown(subject, begin):
        if new[1][-1] == end or len(new[1]) == limit:
            yield new
        else:
            yield from exhaustive(subject, limit, end, new)


def each(subject: Subject, tokens: tuple[int, ...]) -> list[float]:
    """log p of these tokens, one after the other."""
    places = range(len(tokens))
    return [float(subject.scores((*subject.prompts[0], *tokens[:i])).log_softmax(0)[tokens[i]]) for i in places]


def same(subject: Subject, found: list[Generated], wanted: list[Hypothesis], ends: set[int]) -> None:
    assert [w.tokens for w in found] == [tuple(token for token in tokens if token not in ends) for _, tokens in wanted]
    for written, (score, tokens) in zip(found, wanted, strict=True):
        assert written.score == pytest.approx(score, abs=1e-9)
        assert sum(written.logprobs) == pytest.approx(score, abs=1e-9)
        assert written.logprobs == pytest.approx(each(subject, tokens), abs=1e-9)
        assert written.why == ("end" if tokens[-1] in ends else "limit")


@subjects
@pytest.mark.parametrize(
    "how",
    [
        Beam(beams=2),
        Beam(beams=5, best=5, length_penalty=0.0),
        Beam(beams=3, best=2, length_penalty=1.5, early=False),
        Beam(beams=4, best=4, length_penalty=0.0, early=False),
        Beam(beams=4, best=3, length_penalty=-1.0, early=False),
        Beam(beams=15, best=15),  # more than the vocabulary
    ],
    ids=repr,
)
def test_it_is_what_the_specification_says(subject: Callable[[], Subject], how: Beam) -> None:
    s = subject().some(0, 3)
    found = generate(s.model, s.prompts, strategy=how, max_new_tokens=5, end=END, given=s.given)
    for row in range(3):
        same(s.alone(row), found[row], written_out(s.alone(row), how, 5, {END}), {END})


@pytest.mark.parametrize("ends", [(0, 4, 7), (7, 2)], ids=repr)
@pytest.mark.parametrize("how", [Beam(beams=3), Beam(beams=4, best=4, length_penalty=0.5, early=False)], ids=repr)
def test_several_ends(how: Beam, ends: tuple[int, ...]) -> None:
    s = Subject(decoder(), [(1, 2)])
    (found,) = generate(s.model, s.prompts, strategy=how, max_new_tokens=6, end=ends)
    same(s, found, written_out(s, how, 6, set(ends)), set(ends))


@pytest.mark.parametrize("beams", [2, 3])
def test_ends_do_not_take_the_places_of_those_that_live_on(beams: int) -> None:
    """After every token all three ends are likelier than anything else; the penalty makes long answers the best. As
    many candidates as there are beams must be left when all ends of all hypotheses are among the likeliest.
    """
    s = Subject(Script(lambda token, _: favour(9, t6=3.0, t7=2.9, t8=2.8, **{f"t{1 + token % 5}": 1.0})), [(1,)])
    how = Beam(beams=beams, best=beams, length_penalty=4.0, early=False)
    (found,) = generate(s.model, s.prompts, strategy=how, max_new_tokens=4, end=(6, 7, 8))
    same(s, found, written_out(s, how, 4, {6, 7, 8}), {6, 7, 8})


@pytest.mark.parametrize("penalty", [1.0, 0.0, 2.0])
def test_enough_beams_find_the_best_of_all(penalty: float) -> None:
    s = Subject(decoder(4), [(1, 2, 3)])
    (found,) = generate(
        s.model, s.prompts, strategy=Beam(beams=64, best=40, length_penalty=penalty), max_new_tokens=3, end=END
    )
    wanted = sorted(exhaustive(s, 3, END), key=lambda h: -h[0] / len(h[1]) ** penalty)
    assert len(wanted) == 40  # 1 + 3 + 9·4
    same(s, found, wanted, {END})


@subjects
@pytest.mark.parametrize("penalty", [1.0, 0.0, -0.5])
def test_one_beam_is_greedy(subject: Callable[[], Subject], penalty: float) -> None:
    s = subject()
    beam = generate(
        s.model, s.prompts, strategy=Beam(beams=1, length_penalty=penalty), max_new_tokens=12, end=END, given=s.given
    )
    greedy = generate(s.model, s.prompts, max_new_tokens=12, end=END, given=s.given)
    assert [w.tokens for (w,) in beam] == [w.tokens for (w,) in greedy]
    assert [w.why for (w,) in beam] == [w.why for (w,) in greedy]


@subjects
def test_the_best_come_first_and_are_all_different(subject: Callable[[], Subject]) -> None:
    s = subject()
    for answers in generate(
        s.model, s.prompts, strategy=Beam(beams=6, best=6), max_new_tokens=9, end=END, given=s.given
    ):
        ratings = [w.score / (len(w.tokens) + (w.why == "end")) for w in answers]
        assert all(better >= worse for better, worse in pairwise(ratings))
        assert len({w.tokens for w in answers}) == len(answers) == 6


def test_two_ends_do_not_give_one_answer_twice() -> None:
    """Both ends are the likeliest after every token: `a end` and `a other end` are the same answer."""
    model = Script(lambda *_: favour(5, t3=2.0, t4=1.9))
    (answers,) = generate(model, [[1]], strategy=Beam(beams=4, best=4), max_new_tokens=3, end=(3, 4))
    assert len({w.tokens for w in answers}) == len(answers)


def test_fewer_answers_than_asked_for_if_there_are_no_more() -> None:
    (answers,) = generate(counting(3), [[1]], strategy=Beam(beams=9, best=9), max_new_tokens=1, end=0)
    assert sorted(w.tokens for w in answers) == [(), (1,), (2,)]


def test_rows_that_are_done_leave_the_batch() -> None:
    model = counting(20)
    answers = generate(model, [[19], [10], [1]], strategy=Beam(beams=1), max_new_tokens=40, end=0)
    assert [len(w.tokens) for (w,) in answers] == [0, 9, 18]
    assert model.rows == [3] + [2] * 9 + [1] * 9


def test_a_row_is_done_when_nothing_can_change_its_answer() -> None:
    """With a penalty of 0 the first complete hypothesis of the likeliest cannot be beaten."""
    model = counting(9)
    generate(model, [[4]], strategy=Beam(beams=3, length_penalty=0.0, early=False), max_new_tokens=50, end=0)
    assert len(model.rows) == 5


@pytest.mark.parametrize("penalty", [2.0, 1.0, 0.5, 0.0, -1.0])
def test_hope_is_a_bound_and_is_reached(penalty: float) -> None:
    how = Beam(length_penalty=penalty, early=False)
    score, length, limit = -3.0, 4, 10
    hope = how.hope(score, length, limit)
    futures = [how.rating(score - loss, n) for n in range(length + 1, limit + 1) for loss in (0.0, 0.5, 2.0)]
    assert hope == pytest.approx(max(futures))
    complete = Complete(how)
    complete.add(Generated((1,), hope - 1e-6, "end"), 1)
    assert not complete.settled(score, length, limit)
    complete.add(Generated((2,), hope + 1e-6, "end"), 1)
    assert complete.settled(score, length, limit)


def test_a_row_goes_on_while_the_worst_of_the_best_can_be_beaten() -> None:
    """Two answers are asked for. That the first of them is beyond reach says nothing of the second."""
    complete = Complete(Beam(beams=4, best=2, length_penalty=0.0, early=False))
    complete.add(Generated((1,), -1.0, "end"), 2)
    assert not complete.settled(-2.0, 2, 9)  # only one is there
    complete.add(Generated((2,), -3.0, "end"), 2)
    assert not complete.settled(-2.0, 2, 9)
    assert complete.settled(-3.0, 2, 9)
