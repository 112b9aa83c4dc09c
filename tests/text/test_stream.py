"""What an id alone adds to a text, by each kind of decoder."""

from __future__ import annotations

import pytest

from heed.text import Tokenizer
from heed.text.stream import Bytes, Fallback, Stream, Whole
from tests.serve.api.material import END, tokenizer


def test_bytes_alone() -> None:
    own = Tokenizer(tokenizer())
    assert isinstance(own.stream(), Bytes)
    assert b"".join(map(own.stream().alone, own.encode("né🎉"))) == "né🎉".encode()
    assert own.stream().alone(END) == b""


def test_pieces_of_sentencepiece_alone() -> None:
    pieces: list[str | int] = ["▁a".replace("▁", " "), 0xC3, 0xA9, ""]
    found: Stream = Fallback(lambda index: pieces[index], 1)
    assert [found.alone(index) for index in range(4)] == [b" a", b"\xc3", b"\xa9", b""]


@pytest.mark.parametrize("byte", [True, False])
def test_whole_decoders_alone(byte: bool) -> None:
    class One:
        def decode(self, ids: object) -> str:
            return "é"

        def tokens(self, ids: object) -> list[str]:
            return ["<0xC3>" if byte else "é"]

    assert Whole(One()).alone(0) == (b"\xc3" if byte else "é".encode())
