"""The decoding loop: batched is single, streamed is whole, and nobody notices that rows were dropped."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from heed.core.contract import Mixer, Where
from heed.core.errors import CannotStream, ConfigError, InputError
from heed.decode import Beam, Generated, Greedy, Sample, SamplingConfig, Token, generate, stream
from heed.decode.loop import STRATEGIES
from heed.mixers import Attention
from heed.models import Decoder
from heed.parts.masks import Whole
from heed.parts.positions import Learned
from tests.decode.support import (
    END,
    PROMPTS,
    SUBJECTS,
    VOCABULARY,
    Recurrent,
    Script,
    Subject,
    counting,
    decoder,
    favour,
    hybrid,
)

LIMIT = 14
COLD = Sample(temperature=1e-9)
HOWS: tuple[SamplingConfig | Beam, ...] = (
    Greedy(),
    Greedy(repetition=1.3),
    Sample(seed=5),
    Sample(top_k=6, top_p=0.9, min_p=0.05, repetition=1.2, seed=3),
    Beam(beams=3, best=3),
    Beam(beams=4, best=2, length_penalty=0.6, early=False),
)
subjects = pytest.mark.parametrize("subject", SUBJECTS, ids=lambda make: make.__name__)


def close(some: list[Generated], others: list[Generated]) -> None:
    """Equal, but for the rounding of their scores."""
    assert [(w.tokens, w.why, w.cut) for w in some] == [(w.tokens, w.why, w.cut) for w in others]
    for one, other in zip(some, others, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-9)


def alone(how: SamplingConfig | Beam, row: int) -> SamplingConfig | Beam:
    """The same way of choosing for a row that is now the first."""
    return how.model_copy(update={"seed": (how.seed or 0) + row}) if isinstance(how, Sample) else how


@subjects
@pytest.mark.parametrize("how", HOWS, ids=repr)
def test_a_prompt_is_answered_as_it_would_be_alone(subject: Callable[[], Subject], how: SamplingConfig | Beam) -> None:
    whole = subject()
    together = generate(whole.model, whole.prompts, strategy=how, max_new_tokens=LIMIT, end=END, given=whole.given)
    for row, answers in enumerate(together):
        one = whole.alone(row)
        single = generate(
            one.model, one.prompts, strategy=alone(how, row), max_new_tokens=LIMIT, end=END, given=one.given
        )
        close(answers, single[0])
    assert len({written[0].tokens for written in together}) > 3  # the answers are different ones


@subjects
def test_greedy_is_the_largest_score_of_the_whole_pass(subject: Callable[[], Subject]) -> None:
    whole = subject()
    for row, (written,) in enumerate(
        generate(whole.model, whole.prompts, max_new_tokens=6, end=None, given=whole.given)
    ):
        one = whole.alone(row)
        tokens, score, each = list(one.prompts[0]), 0.0, list[float]()
        for _ in range(6):
            logprob = one.scores(tokens).log_softmax(0)
            tokens.append(int(logprob.argmax()))
            score += float(logprob.max())
            each.append(float(logprob.max()))
        assert written.tokens == tuple(tokens[-6:])
        assert written.why == "limit"
        assert written.score == pytest.approx(score, abs=1e-9)
        assert written.logprobs == pytest.approx(each, abs=1e-9)


@subjects
def test_the_limit_of_a_falling_temperature_is_greedy(subject: Callable[[], Subject]) -> None:
    s = subject()
    cold = generate(s.model, s.prompts, strategy=COLD, max_new_tokens=LIMIT, end=END, given=s.given)
    assert cold == generate(s.model, s.prompts, max_new_tokens=LIMIT, end=END, given=s.given)
    warm = generate(s.model, s.prompts, strategy=Sample(seed=0), max_new_tokens=LIMIT, end=END, given=s.given)
    assert cold != warm


@pytest.mark.parametrize("temperature", [1e-40, 1e-310])
def test_no_temperature_is_too_cold(temperature: float) -> None:
    model = decoder().float()
    cold = generate(model, PROMPTS, strategy=Sample(temperature=temperature), max_new_tokens=5, end=END)
    for (one,), (greedy,) in zip(cold, generate(model, PROMPTS, max_new_tokens=5, end=END), strict=True):
        assert (one.tokens, one.why) == (greedy.tokens, greedy.why)
        assert abs(one.score - greedy.score) < 1e-5  # float32: the kernel that is greedy sums in another order


@pytest.mark.parametrize("how", [how for how in HOWS if isinstance(how, SamplingConfig)], ids=repr)
def test_a_stream_has_the_tokens_of_the_answers(how: SamplingConfig) -> None:
    s = hybrid()
    lines: list[list[Token]] = [[] for _ in s.prompts]
    for token in stream(s.model, s.prompts, strategy=how, max_new_tokens=LIMIT, end=END):
        lines[token.row].append(token)
    for line, (written,) in zip(
        lines, generate(s.model, s.prompts, strategy=how, max_new_tokens=LIMIT, end=END), strict=True
    ):
        assert tuple(t.token for t in line if t.kept) == written.tokens
        assert [t.why for t in line] == [None] * (len(line) - 1) + [written.why]
        assert sum(t.logprob for t in line) == pytest.approx(written.score, abs=1e-12)
        assert not line[-1].kept or written.why == "limit"


def test_a_stream_is_written_only_as_far_as_it_is_read() -> None:
    model = counting(9)
    tokens = stream(model, [[1]], max_new_tokens=100, end=0)
    assert [next(tokens).token for _ in range(3)] == [2, 3, 4]
    assert len(model.rows) == 3


def test_the_end_is_not_a_token_of_the_answer_but_counts_in_its_score() -> None:
    (five,), (none,) = generate(counting(6), [[0], [5]], max_new_tokens=6, end=0)
    assert (five.tokens, five.why) == ((1, 2, 3, 4, 5), "end")
    assert (none.tokens, none.why) == ((), "end")
    assert five.score == pytest.approx(6 * none.score)
    assert none.score == pytest.approx(float(torch.tensor([5.0, 0, 0, 0, 0, 0]).log_softmax(0)[0]))


def test_there_may_be_several_ends_or_none() -> None:
    assert [w.tokens for (w,) in generate(counting(9), [[1], [5]], max_new_tokens=20, end=(4, 7))] == [(2, 3), (6,)]
    assert generate(counting(3), [[0]], max_new_tokens=5, end=None)[0][0].tokens == (1, 2, 0, 1, 2)


def test_one_token_and_no_prompts() -> None:
    for how in (Greedy(), Sample(), Beam(beams=2)):
        (written,) = generate(decoder(), [[1, 2]], strategy=how, max_new_tokens=1, end=None)[0]
        assert (len(written.tokens), written.why) == (1, "limit")
        assert generate(decoder(), [], strategy=how, max_new_tokens=1, end=None) == []


def test_rows_that_are_done_leave_the_batch() -> None:
    model = counting(20)
    answers = generate(model, [[19], [18], [12], [10], [9], [8], [7], [1]], max_new_tokens=40, end=0)
    assert [len(w.tokens) for (w,) in answers] == [0, 1, 7, 9, 10, 11, 12, 18]
    assert model.rows[0] == 8
    assert model.rows[-1] == 1
    assert sum(model.rows) < 0.85 * 8 * len(model.rows)


def test_a_row_that_is_done_is_not_led_beyond_what_the_model_can_do() -> None:
    """The longest prompt ends at once; the others go on to places that it alone would not have reached."""
    model = decoder(mixer=Attention.Config(heads=2), position=Learned.Config(length=8))
    long = (1,) * 7 + (2,)
    with pytest.raises(InputError):
        generate(model, [long], max_new_tokens=2, end=None)
    end = generate(model, [long], max_new_tokens=1, end=None)[0][0].tokens[0]
    alone = [generate(model, [(token,)], max_new_tokens=7, end=end)[0] for token in range(VOCABULARY)]
    short = max(range(VOCABULARY), key=lambda token: len(alone[token][0].tokens))
    assert len(alone[short][0].tokens) > 2
    answers = generate(model, [long] + [(short,)] * 7, max_new_tokens=7, end=end)  # one of eight does not pay to drop
    assert (answers[0][0].tokens, answers[0][0].why) == ((), "end")
    close(answers[1], alone[short])


def test_draws_depend_on_the_seed_and_on_nothing_else() -> None:
    model = decoder()
    first = generate(model, PROMPTS, strategy=Sample(seed=1), max_new_tokens=LIMIT, end=END)
    torch.manual_seed(99)
    assert first == generate(model, PROMPTS, strategy=Sample(seed=1), max_new_tokens=LIMIT, end=END)
    assert first != generate(model, PROMPTS, strategy=Sample(seed=2), max_new_tokens=LIMIT, end=END)
    same = generate(model, [PROMPTS[0]] * 8, strategy=Sample(seed=0), max_new_tokens=LIMIT, end=END)
    assert len({w.tokens for (w,) in same}) == 8  # rows draw for themselves


def test_without_a_seed_every_call_draws_anew() -> None:
    model = decoder()
    drawn = [generate(model, PROMPTS, strategy=Sample(), max_new_tokens=LIMIT, end=None) for _ in range(3)]
    assert len({tuple(w.tokens for (w,) in one) for one in drawn}) == 3
    told = Sample(top_k=9).seeded()
    assert told.seed is not None
    assert told.seeded() is told.seeded(7) is told  # its own seed stays
    assert Sample(top_k=9).seeded(7) == Sample(top_k=9, seed=7)
    assert Greedy().seeded() == Greedy()


def test_more_draws_than_are_made_at_a_time() -> None:
    model = Recurrent(VOCABULARY).double()
    (written,) = generate(model, [[1]], strategy=Sample(seed=0), max_new_tokens=150, end=None)[0]
    assert len(written.tokens) == 150
    assert written.tokens[64:128] != written.tokens[:64]


@pytest.mark.parametrize("how", [Greedy(), Sample(seed=0), Beam()], ids=repr)
def test_the_model_is_left_as_it_was(how: SamplingConfig | Beam) -> None:
    model = decoder(dropout=0.5)
    quiet = generate(model, PROMPTS, strategy=how, max_new_tokens=5, end=END)
    model.train()
    model.stack.eval()
    before = [module.training for module in model.modules()]
    assert generate(model, PROMPTS, strategy=how, max_new_tokens=5, end=END) == quiet  # no dropout
    assert [module.training for module in model.modules()] == before
    assert torch.is_grad_enabled()


def test_between_two_tokens_of_a_stream_the_model_is_as_the_caller_left_it() -> None:
    model = counting(9).train()
    for _ in stream(model, [[1]], max_new_tokens=4, end=None):
        assert model.training
        assert torch.is_grad_enabled()
    assert model.modes == [False] * 4

    def broken(token: int, order: int) -> list[float]:
        raise ZeroDivisionError

    model = Script(broken).train()
    with pytest.raises(ZeroDivisionError):
        generate(model, [[1]], max_new_tokens=4, end=None)
    assert model.training


def test_what_was_given_is_still_fit_for_training() -> None:
    s = SUBJECTS[3]()
    generate(s.model, s.prompts, strategy=Beam(beams=2), max_new_tokens=3, end=END, given=s.given)
    target = torch.tensor(s.prompts)
    scores, _ = s.model(target, Where.run(*target.shape).beside(s.given))
    scores.square().sum().backward()
    gradients = [weight.grad for weight in s.model.parameters() if weight.grad is not None]
    assert sum(float(gradient.abs().sum()) for gradient in gradients) > 0
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("how", [Greedy(), Sample(top_p=0.9), Beam()], ids=repr)
def test_other_precisions(dtype: torch.dtype, how: SamplingConfig | Beam) -> None:
    answers = generate(decoder().to(dtype), PROMPTS, strategy=how, max_new_tokens=5, end=END)
    assert all(torch.isfinite(torch.tensor(w.score)) for (w,) in answers)


def fast() -> Subject:
    """A model in float32, which the kernels run: several tokens are written at once there."""
    return Subject(decoder().float())


@pytest.mark.parametrize("how", [Greedy(), Sample(seed=5), Sample(seed=2, top_k=5, repetition=1.4)], ids=repr)
@pytest.mark.parametrize("limit", [2, 17, 40])
def test_many_tokens_at_once_are_those_one_by_one(how: SamplingConfig, limit: int) -> None:
    """A constraint that allows all is asked before every token, so that none are written at once."""
    s = fast()
    free = generate(s.model, s.prompts, strategy=how, max_new_tokens=limit, end=END)
    asked = generate(s.model, s.prompts, strategy=how, max_new_tokens=limit, end=END, constraint=lambda *_: None)
    for (one,), (other,) in zip(free, asked, strict=True):
        assert (one.tokens, one.why) == (other.tokens, other.why)
        assert one.score == pytest.approx(other.score, abs=1e-3)
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
        assert len(one.logprobs) == len(one.tokens) + (one.why == "end")
        assert len(one.tokens) <= limit
    assert limit < 40 or "end" in {one.why for (one,) in free} or how == Greedy()  # rows end within a burst


def test_a_number_that_is_none_is_told_among_many_tokens_at_once() -> None:
    """From position 9 on the model gives NaN: after seven tokens of a prompt of three there is nothing to choose."""
    model = decoder(mixer=Attention.Config(heads=2), position=Learned.Config(length=64)).float()
    with torch.no_grad():
        model.get_parameter("embeddings.position.table")[9:] = torch.nan
    with pytest.raises(InputError, match="prompt 0 hold NaN or infinity at step 8"):
        generate(model, [[1, 2, 3], [1]], max_new_tokens=30, end=None)


ERRORS: dict[str, tuple[Callable[[], Mixer], list, dict, str]] = {
    "empty prompt": (decoder, [[1], []], {}, "prompt 1 is empty"),
    "one prompt": (decoder, [1, 2, 3], {}, "give a list of prompts"),
    "no room": (decoder, [[1]], {"max_new_tokens": 0}, "max_new_tokens is 0"),
    "strange end": (decoder, [[1]], {"end": 99}, r"\[99\] are not in the vocabulary, which is 0 to 12"),
    "an end just beyond": (decoder, [[1]], {"end": VOCABULARY}, r"\[13\] are not in the vocabulary, which is 0 to 12"),
    "NaN": (
        lambda: Script(lambda _, order: favour(4, t1=float("nan") if order == 2 else 0.0)),
        [[2]],
        {},
        "prompt 0 hold NaN or infinity at step 3",
    ),
    "infinity": (lambda: Script(lambda *_: favour(4, t1=float("inf"))), [[2]], {}, "hold NaN or infinity at step 1"),
}


@pytest.mark.parametrize("how", [Greedy(), Sample(seed=0), Beam()], ids=repr)
@pytest.mark.parametrize(("model", "prompts", "more", "message"), ERRORS.values(), ids=ERRORS)
def test_errors_teach(
    model: Callable[[], Mixer],
    prompts: list[list[int]],
    more: dict[str, int],
    message: str,
    how: SamplingConfig | Beam,
) -> None:
    with pytest.raises(InputError, match=message):
        generate(model(), prompts, strategy=how, **{"max_new_tokens": 5, "end": None, **more})  # type: ignore[arg-type]


def test_beams_cannot_be_streamed_and_a_model_that_looks_ahead_cannot_write() -> None:
    with pytest.raises(InputError, match="use generate"):
        stream(decoder(), [[1]], strategy=Beam(), max_new_tokens=3, end=None)
    both = Decoder.Config(vocabulary=5, width=8, depth=1, mixer=Attention.Config(heads=2, mask=Whole())).build()
    with pytest.raises(CannotStream):
        stream(both, [[1]], max_new_tokens=3, end=None)


def test_ways_are_configurations() -> None:
    for way in STRATEGIES:
        assert way.load(way().dump()) == way()
    with pytest.raises(ConfigError, match="5 beams cannot give the 6 best"):
        Beam(best=6)
    with pytest.raises(ConfigError, match="temperature"):
        Sample(temperature=0.0)
