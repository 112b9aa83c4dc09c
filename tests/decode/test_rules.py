"""Stop strings, constraints and forced beginnings, for every way of choosing tokens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise, product

import pytest
import torch

from heed.core.errors import InputError
from heed.decode import Beam, Begin, Choices, Generated, Greedy, Never, Sample, SamplingConfig, Stop, generate, stream
from heed.decode.constraints import restrict
from tests.decode.support import END, PROMPTS, SUBJECTS, VOCABULARY, Script, Subject, decoder, favour, hybrid

PIECES = ("", "He", "llo ", "wor", "ld\nUs", "er: ", "x", "é", "STOP")
HOWS: tuple[SamplingConfig | Beam, ...] = (Greedy(), Sample(seed=1), Beam(beams=3, best=3))
ways = pytest.mark.parametrize("how", HOWS, ids=repr)


def text(tokens: Sequence[int]) -> str:
    return "".join(PIECES[token] for token in tokens)


def speaking(*tokens: int) -> Script:
    """Writes these tokens one after the other, starting from a prompt of one token."""
    return Script(lambda _, order: [9.0 * (token == tokens[order % len(tokens)]) for token in range(len(PIECES))])


def answer(model: Script, stop: Stop, how: SamplingConfig | Beam = HOWS[0], limit: int = 6) -> Generated:
    return generate(model, [[0]], strategy=how, max_new_tokens=limit, end=0, stop=stop)[0][0]


# --- stop strings ---


@pytest.mark.parametrize("how", [Greedy(), Sample(temperature=0.01), Beam(beams=2)], ids=repr)
def test_a_stop_string_may_straddle_tokens(how: SamplingConfig | Beam) -> None:
    """The token that begins before the stop string goes; the text is cut exactly."""
    stop = Stop(("\nUser:",), text)
    written = answer(speaking(1, 2, 3, 4, 5, 6), stop, how)
    assert (written.tokens, written.cut, written.why) == ((1, 2, 3), (4, 5), "stop")
    assert stop.text(written) == "Hello world"


@pytest.mark.parametrize("how", [Greedy(), Beam(beams=2)], ids=repr)
def test_a_stop_string_at_the_border_of_a_token_and_within_one(how: SamplingConfig | Beam) -> None:
    assert answer(speaking(1, 2, 8, 1), Stop(("STOP",), text), how).tokens == (1, 2)
    within = answer(speaking(1, 2, 4, 1), Stop(("\n", "no"), text), how)
    assert (within.tokens, within.cut) == ((1, 2), (4,))
    first = answer(speaking(8, 1), Stop(("STOP",), text), how)
    assert (first.tokens, first.why) == ((), "stop")


@pytest.mark.parametrize("how", [Greedy(), Beam(beams=2)], ids=repr)
def test_what_only_looked_like_a_stop_string_stays(how: SamplingConfig | Beam) -> None:
    stop = Stop(("\nUse it",), text)
    limit = answer(speaking(1, 4, 5, 6), stop, how, limit=3)
    assert (limit.tokens, limit.cut, limit.why) == ((1, 4, 5), (), "limit")
    pending = answer(speaking(1, 4, 0), stop, how)
    assert (pending.tokens, pending.why) == ((1, 4), "end")


def test_the_score_counts_all_that_was_written() -> None:
    stopped = answer(speaking(1, 8, 2), Stop(("STOP",), text))
    whole = generate(speaking(1, 8, 2), [[0]], max_new_tokens=2, end=None)[0][0]
    assert stopped.score == pytest.approx(whole.score)


def test_a_stream_holds_back_what_may_become_a_stop_string() -> None:
    model = speaking(1, 2, 3, 4, 6, 4, 5)
    seen: list[tuple[int, int]] = []  # a token, and how many calls had been made when it came
    out = []
    for token in stream(model, [[0]], max_new_tokens=9, end=0, stop=Stop(("\nUser",), text)):
        seen.append((token.token, len(model.rows)))
        out.append((token.token, token.kept, token.why))
    assert seen == [(1, 1), (2, 2), (3, 3), (4, 5), (6, 5), (4, 7), (5, 7)]
    assert out[-3:] == [(6, True, None), (4, False, None), (5, False, "stop")]


def test_the_first_stop_string_of_the_text_counts_whatever_their_order() -> None:
    for texts in (("wor", "llo"), ("llo", "wor")):
        stop = Stop(texts, text)
        assert stop.find("Hello world") == 2
        assert stop.cut("Hello world") == stop.safe("Hello world") == "He"
        assert stop.find("Hel") is None


def test_rows_stop_one_by_one() -> None:
    model = Script(lambda token, _: [9.0 * (other == token % 8 + 1) for other in range(9)])
    answers = generate(model, [[3], [6], [7]], max_new_tokens=6, end=0, stop=Stop(("STOP", "He"), text))
    assert [w.tokens for (w,) in answers] == [(4, 5, 6, 7), (7,), ()]


SAFE = {
    "nothing of it": ("Hello", "Hello"),
    "a beginning": ("Hello\n", "Hello"),
    "a longer beginning": ("Hello\nUse", "Hello"),
    "a false beginning": ("Hello\nUsx", "Hello\nUsx"),
    "the whole": ("Hello\nUser: x", "Hello"),
    "a beginning within a beginning": ("a\n\nUs", "a\n"),
    "overlapping stops": ("xab", "x"),
    "an unfinished character": ("Hello\ufffd", "Hello"),
    "an unfinished character after a beginning": ("Hello\n\ufffd", "Hello"),
    "no text": ("", ""),
}


@pytest.mark.parametrize(("given", "wanted"), SAFE.values(), ids=SAFE)
def test_safe_text(given: str, wanted: str) -> None:
    assert Stop(("\nUser", "abcd", "bcx"), text).safe(given) == wanted


def test_what_is_safe_stays_safe() -> None:
    """Every text of seven letters, as far as it would be written: whatever is shown is in the final text."""
    stop = Stop(("aab", "bacb", "abb"), text)
    for letters in product("abc", repeat=7):
        whole = "".join(letters)
        lengths = [length for length in range(8) if stop.find(whole[: max(0, length - 1)]) is None]
        final = stop.cut(whole[: lengths[-1]])
        shown = [stop.safe(whole[:length]) for length in lengths]
        assert all(later.startswith(earlier) for earlier, later in pairwise([*shown, final])), whole


def test_a_token_is_shown_when_its_character_is_finished() -> None:
    """Byte by byte: 195, 169 is é. Held back until it is whole, then both at once."""

    def decode(tokens: Sequence[int]) -> str:
        return bytes({1: 195, 2: 169, 3: 33}[token] for token in tokens).decode(errors="replace")

    model = Script(lambda _, order: [9.0 * (token == (3, 1, 2, 3)[order]) for token in range(4)])
    tokens = [
        (t.token, len(model.rows)) for t in stream(model, [[0]], max_new_tokens=4, end=0, stop=Stop(("no",), decode))
    ]
    assert tokens == [(3, 1), (1, 3), (2, 3), (3, 4)]


@pytest.mark.parametrize("texts", ["text", (), ("a", "")])
def test_stop_strings_are_texts(texts: Sequence[str]) -> None:
    with pytest.raises(InputError, match="none of them empty"):
        Stop(texts, text)


# --- constraints ---

ANSWERS = ((1, 2, 3), (1, 2), (4,), (1, 5, 5, 5))


@ways
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda make: make.__name__)
def test_the_answer_is_one_of_the_choices(subject: Callable[[], Subject], how: SamplingConfig | Beam) -> None:
    s = subject()
    choices = Choices(ANSWERS, END)
    for answers in generate(
        s.model, s.prompts, strategy=how, max_new_tokens=9, end=END, given=s.given, constraint=choices
    ):
        assert {w.tokens for w in answers} <= set(ANSWERS)
        assert all(w.why == "end" for w in answers)


def test_beams_rank_the_choices() -> None:
    """By the model's own log p, not by p among what is allowed."""
    s = hybrid()
    how = Beam(beams=4, best=4, early=False)
    for row, answers in enumerate(
        generate(s.model, s.prompts, strategy=how, max_new_tokens=9, end=END, constraint=Choices(ANSWERS, END))
    ):
        assert {w.tokens for w in answers} == set(ANSWERS)
        for written in answers:
            tokens, score = list(s.prompts[row]), 0.0
            for token in (*written.tokens, END):
                score += float(s.alone(row).scores(tokens).log_softmax(0)[token])
                tokens.append(token)
            assert written.score == pytest.approx(score, abs=1e-9)


def test_a_constraint_is_asked_by_prompt_and_comes_before_truncation() -> None:
    """Each row may write its own number only, whatever its score, and rows that are done are not asked."""
    asked: list[tuple[int, int]] = []

    def allow(row: int, written: tuple[int, ...]) -> Collection[int] | None:
        asked.append((row, len(written)))
        return {END} if len(written) == row else {row + 2}

    for how in (Greedy(), Sample(top_k=1), Beam(beams=2)):
        asked.clear()
        answers = generate(decoder(), PROMPTS[:4], strategy=how, max_new_tokens=9, end=END, constraint=allow)
        assert [w.tokens for (w, *_) in answers] == [(), (3,), (4, 4), (5, 5, 5)]
        assert sorted(asked) == [(row, step) for row in range(4) for step in range(row + 1)]


def test_none_allows_everything() -> None:
    model = decoder()
    assert generate(model, PROMPTS, max_new_tokens=5, end=END, constraint=lambda *_: None) == generate(
        model, PROMPTS, max_new_tokens=5, end=END
    )


@ways
def test_an_answer_begins_as_it_must(how: SamplingConfig | Beam) -> None:
    prefixes = ((1, 2, 3), (), (7,), (5, 5, 5, 5), (3,), (6, 1))
    s = hybrid()
    answers = generate(s.model, s.prompts, strategy=how, max_new_tokens=6, end=END, constraint=Begin(prefixes))
    free = generate(s.model, s.prompts, strategy=how, max_new_tokens=6, end=END)
    for row, prefix in enumerate(prefixes):
        assert all(w.tokens[: len(prefix)] == prefix for w in answers[row])
        assert len({w.tokens for w in answers[row]}) == len(answers[row])
    assert answers[1] == free[1]
    assert answers != free


def test_what_follows_a_forced_beginning_is_what_would_follow_it_in_the_prompt() -> None:
    s = hybrid()
    forced = generate(s.model, s.prompts, max_new_tokens=8, end=END, constraint=Begin([(1, 2, 3)] * 6))
    longer = generate(s.model, [(*prompt, 1, 2, 3) for prompt in s.prompts], max_new_tokens=5, end=END)
    assert [w.tokens[3:] for (w,) in forced] == [w.tokens for (w,) in longer]


def test_a_beginning_and_then_a_choice() -> None:
    allow = Begin([(7,)] * 6, Choices(ANSWERS, END))
    for how in HOWS:
        for answers in generate(decoder(), PROMPTS, strategy=how, max_new_tokens=9, end=END, constraint=allow):
            assert {w.tokens for w in answers} <= {(7, *answer) for answer in ANSWERS}


@ways
def test_nothing_allowed_is_an_error(how: SamplingConfig | Beam) -> None:
    with pytest.raises(InputError, match="prompt 1 has no (answer|token for step 2)"):
        generate(
            decoder(),
            [[1], [2]],
            strategy=how,
            max_new_tokens=3,
            end=END,
            constraint=lambda row, w: () if row and w else (4, 5),
        )
    minus = Script(lambda *_: [0.0, 0.0, -float("inf")])
    with pytest.raises(InputError, match="prompt 0 has no"):
        generate(minus, [[1]], strategy=how, max_new_tokens=3, end=END, constraint=lambda *_: {2})


@ways
@pytest.mark.parametrize("beyond", [99, VOCABULARY])
def test_only_tokens_of_the_vocabulary_can_be_allowed(how: SamplingConfig | Beam, beyond: int) -> None:
    with pytest.raises(InputError, match=f"tokens from 1 to {beyond}; the vocabulary is 0 to {VOCABULARY - 1}"):
        generate(decoder(), [[1]], strategy=how, max_new_tokens=3, end=END, constraint=lambda *_: (1, beyond))


@ways
def test_what_must_not_come_may_come_later_if_it_is_only_barred_at_first(how: SamplingConfig | Beam) -> None:
    """Token 1 is the likeliest and never comes, token 2 comes as soon as it may, ids that do not exist bar nothing."""
    model = Script(lambda *_: favour(6, t1=30.0, t2=20.0, t3=10.0))
    never = Never((1, 99, -1), 6, first=(2,))
    (written, *_) = generate(model, [[4]], strategy=how, max_new_tokens=3, end=END, constraint=never)[0]
    assert written.tokens == (3, 2, 2)


def test_restricting_leaves_the_given_logits_and_other_rows_alone() -> None:
    logits = torch.arange(8.0).view(2, 4)
    mask, none = torch.tensor([True, False, True, False]), -torch.inf
    assert restrict(logits, [mask, None]).tolist() == [[0.0, none, 2.0, none], [4.0, 5.0, 6.0, 7.0]]
    assert restrict(logits, [mask, (3,)]).tolist() == [[0.0, none, 2.0, none], [none, none, none, 7.0]]
    assert restrict(logits, [None, ()]).tolist() == [[0.0, 1.0, 2.0, 3.0], [none] * 4]
    assert torch.equal(logits, torch.arange(8.0).view(2, 4))


def test_a_beam_may_run_dry_as_long_as_another_one_lives() -> None:
    def allow(row: int, written: tuple[int, ...]) -> Collection[int]:
        return {(): (1, 2, 3), (1,): (), (2,): (4, END), (3,): (5,)}.get(written, (END,))

    (answers,) = generate(decoder(), [[1]], strategy=Beam(beams=5, best=5), max_new_tokens=5, end=END, constraint=allow)
    assert {w.tokens for w in answers} == {(2,), (2, 4), (3, 5)}


def test_choices_and_prefixes_must_be_there() -> None:
    with pytest.raises(InputError, match="at least one"):
        Choices((), END)
    with pytest.raises(InputError, match="none for prompt 1"):
        generate(decoder(), [[1], [2]], max_new_tokens=2, end=END, constraint=Begin([(1,)]))
