"""Heat maps: columns that line up in any script, pages that are whole, escaped and need no network."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from heed.core.errors import InputError
from heed.show.heatmap import SHADES, Figure, page, text_map, write_page


def lines(weights: list[list[float]], rows: list[str], columns: list[str], width: int = 100) -> list[str]:
    return text_map(weights, rows, columns, width).plain.split("\n")


def cells(line: str) -> list[str]:
    """What stands in each cell of a terminal; the second cell of a broad character holds nothing."""
    return [part for character in line for part in (character, *[""] * (cell_len(character) - 1))]


# --- text ---


def test_shades_grow_with_the_weight_relative_to_the_largest() -> None:
    head, row, legend = lines([[0.0, 0.1, 0.2, 0.3, 0.4]], ["x"], list("abcde"))
    assert head == "  a b c d e "
    assert row == "x " + "".join(block * 2 for block, _ in SHADES)
    assert "0.40" in legend
    assert "0.08" in legend


@pytest.mark.parametrize("columns", [["年", "a", "日"], ["</s>", "星期六", "é", "e\u0301"], ["ﬁ", "👩", "␣"]])
def test_columns_line_up_in_every_script(columns: list[str]) -> None:
    """Each label begins in the cell in which the blocks of its column begin."""
    for place in range(len(columns)):
        weights = [[float(column == place) for column in range(len(columns))]]
        head, row, _ = lines(weights, ["三月"], columns)
        assert cell_len(head) == cell_len(row)
        begin = cells(row).index("█")
        assert cells(head)[begin] == columns[place][0]


def test_columns_that_do_not_fit_stand_below() -> None:
    weights = [[float(row == column) for column in range(10)] for row in range(2)]
    found = lines(weights, ["r", "s"], list("abcdefghij"), width=9)
    assert all(cell_len(line) <= 9 for line in found[:-1])
    assert "".join(found[0::3][:4]).split() == list("abcdefghij")
    assert sum("█" in line for line in found[:-1]) == 2


def test_labels_cannot_move_the_cursor() -> None:
    text = text_map([[1.0]], ["a\nb"], ["\x1b[2J\t"])
    assert len(text.plain.split("\n")) == 3
    assert "\x1b" not in text.plain


def test_labels_are_not_markup_and_colours_are_extra() -> None:
    plain, coloured = StringIO(), StringIO()
    text = text_map([[1.0, 0.3]], ["[bold]"], ["[/]", "b"])
    Console(file=plain, no_color=True, width=80).print(text)
    Console(file=coloured, force_terminal=True, color_system="truecolor", width=80).print(text)
    assert "[bold] ███ ░░" in plain.getvalue()
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured.getvalue()) == plain.getvalue()
    assert plain.getvalue() != coloured.getvalue()


def test_a_map_of_zeros_is_empty() -> None:
    assert lines([[0.0, 0.0]], ["r"], ["a", "b"])[1] == "r     "


@pytest.mark.parametrize(
    ("weights", "rows", "columns", "message"),
    [
        ([[1.0]], ["a", "b"], ["c"], "2 row labels and 1 column labels"),
        ([[1.0, 2.0]], ["a"], ["c"], "got 1 rows of [2] weights"),
        ([], [], [], "at least one"),
        ([[float("nan")]], ["a"], ["c"], "not nan"),
        ([[-0.5]], ["a"], ["c"], "not -0.5"),
    ],
)
def test_what_is_no_map(weights: list[list[float]], rows: list[str], columns: list[str], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        text_map(weights, rows, columns)


# --- page ---


class Whole(HTMLParser):
    """Every tag that opens closes, in order; texts by the tag they stand in."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self.open[-1], data.strip()))

    def within(self, tag: str) -> list[str]:
        return [text for place, text in self.texts if place == tag]


EVIL = '"><script>alert("&")</script>'


def test_a_page_is_well_formed_and_says_every_number() -> None:
    weights = [[0.125, 0.875], [0.9994, 0.0006]]
    found = Whole(page("A title", "An intro", [Figure("a map", weights, ["r", "s"], ["年", "c"])]))
    assert {"r ← 年: 0.125", "r ← c: 0.875", "s ← 年: 0.999", "s ← c: 0.001"} < set(found.within("title"))
    assert found.within("h1") == ["A title"]
    assert found.within("p") == ["An intro"]
    assert found.within("figcaption") == ["a map"]
    squares = [attributes for tag, attributes in found.tags if tag == "rect" and "class" not in attributes]
    assert [float(square["fill-opacity"] or "") for square in squares] == [0.125, 0.876, 1.0, 0.001]


def test_a_map_has_words_for_those_who_cannot_see_it() -> None:
    found = Whole(page("t", "i", [Figure("a map", [[0.1, 0.9]], ["r"], ["b", "c"])]))
    (drawing,) = (attributes for tag, attributes in found.tags if tag == "svg")
    assert drawing["role"] == "img"
    assert drawing["aria-label"] == "a map. r: most on c (0.90)"
    assert dict(found.tags[0:1])["html"]["lang"] == "en"


def test_whatever_a_text_holds_it_stays_text() -> None:
    text = page(EVIL, EVIL, [Figure(EVIL, [[1.0, 1.0]], [EVIL], [EVIL, "a\0\n"], part=EVIL)])
    found = Whole(text)
    assert "<script" not in text
    assert found.within("h1") == found.within("h2") == found.within("p") == found.within("figcaption") == [EVIL]
    assert found.within("text") == [EVIL, "a··", EVIL]
    assert all(not name.startswith("on") for _, attributes in found.tags for name in attributes)


def test_a_page_needs_nothing_but_itself() -> None:
    text = page("t", "i", [Figure("f", [[1.0]], ["r"], ["c"])])
    found = Whole(text)
    assert "://" not in text
    assert "url(" not in text
    assert "@import" not in text
    assert not {"script", "link", "img", "iframe", "object", "base"} & {tag for tag, _ in found.tags}
    assert not {"src", "href", "xlink:href"} & {name for _, attributes in found.tags for name in attributes}
    assert "prefers-color-scheme: dark" in text
    assert any("default-src 'none'" in (attributes.get("content") or "") for _, attributes in found.tags)


def test_maps_of_one_part_share_a_heading() -> None:
    maps = [Figure(str(number), [[1.0]], ["r"], ["c"], part=part) for number, part in enumerate("xxy")]
    found = Whole(page("t", "i", maps))
    assert found.within("h2") == ["x", "y"]
    assert found.within("figcaption") == ["0", "1", "2"]


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path, figure = tmp_path / "map.html", Figure("f", [[1.0]], ["日"], ["c"])
    write_page(path, "t", "i", [figure])
    assert path.read_text(encoding="utf-8") == page("t", "i", [figure])
    before = path.read_bytes()
    with pytest.raises(UnicodeEncodeError):
        write_page(path, "\ud800", "i", [figure])
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["map.html"]
