"""Text as it grows: what is shown is a beginning of the answer, whole characters only, and nothing of a stop string."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import one_hot

from heed.serve.answer import Event
from heed.serve.request import Request
from heed.serve.text import GrowingText
from heed.serve.writer import Writer
from heed.text.stream import Bytes

TEXT = "naïve 😀 日本語 ABAB ABA end"


class Counted(Bytes):
    """A stream of single bytes, which counts what it is asked."""

    def __init__(self) -> None:
        super().__init__(lambda token: bytes([token]))


def grown(data: Sequence[int], stops: Sequence[str]) -> tuple[str, list[Event], bool]:
    text, events = GrowingText(Counted(), stops), list[Event]()
    for token in data:
        events += text.push(Event(token))
        if text.stopped:
            break
    more, rest = text.finish()
    return "".join(event.text for event in (*events, *more)) + rest, [*events, *more], text.stopped


def cut(text: str, stops: Sequence[str]) -> str:
    begins = [at for stop in stops if (at := text.find(stop)) >= 0]
    return text[: min(begins)] if begins else text


@pytest.mark.parametrize("stops", [(), ("ABA",), ("😀",), ("\u672c\u8a9e",), ("BABX", "end"), ("zzz",), ("n",)])
def test_text_ends_before_a_stop_string(stops: tuple[str, ...]) -> None:
    data = TEXT.encode()
    shown, events, stopped = grown(data, stops)
    assert shown == cut(TEXT, stops)
    assert stopped == (shown != TEXT)
    kept = [event.token for event in events]
    assert kept == list(shown.encode())  # the bytes of a character stay or go with it
    assert all("\ufffd" not in event.text for event in events)


@given(st.text("ab€😀", max_size=30), st.lists(st.text("ab€😀", min_size=1, max_size=4), max_size=3))
def test_any_text_and_any_stop_strings(text: str, stops: list[str]) -> None:
    """What stops is the first stop string that is whole, as in a search after every token."""
    growing, shown = GrowingText(Counted(), stops), ""
    for length, token in enumerate(text.encode(), 1):
        shown += "".join(event.text for event in growing.push(Event(token)))
        known = text.encode()[:length].decode(errors="ignore")
        assert cut(known, stops).startswith(shown)
        assert growing.stopped == any(stop in known for stop in stops)
        if growing.stopped:
            assert shown == cut(known, stops)
            break
    events, rest = growing.finish()
    if not growing.stopped:
        assert shown + "".join(event.text for event in events) + rest == text


def test_an_unfinished_character_is_shown_at_the_end_only() -> None:
    data = "a😀".encode()[:-1]
    for stops in ((), ("x",)):
        shown, events, _ = grown(data, stops)
        assert shown == "a\ufffd"
        assert [event.token for event in events] == list(data)


def test_an_unfinished_character_may_end_an_answer() -> None:
    """It is shown as broken, and what is shown so may be a stop string: known at the end alone."""
    data, stops = "ab😀".encode()[:-1], ("b\ufffd",)
    shown, _, stopped = grown(data, stops)
    assert (shown, stopped) == ("a", True)
    writer = Writer(Request(prompt=[1], stop=stops), [1], limit=len(data), ends=(), stream=Counted())
    for token in data:
        writer.write(one_hot(torch.tensor(token), 256).float())
    assert writer.reason == "limit"
    events, rest, reason = writer.finish()
    assert ("".join(event.text for event in events) + rest, reason) == ("", "stop")  # "a" was given out before


def test_a_long_answer_searches_little() -> None:
    """What is held back is never longer than a stop string and a token."""
    text = GrowingText(Counted(), ["a" * 40 + "b"])
    for token in b"a" * 5_000:
        text.push(Event(token))
        assert len(text._held) <= 41
        assert len(text._waiting) <= 41


def test_without_a_tokenizer_there_are_ids_only() -> None:
    text = GrowingText(None)
    assert text.push(Event(7)) == [Event(7)]
    assert text.finish() == ([], "")
