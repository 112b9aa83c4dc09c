"""Questions about a text, with their answers: SQuAD's json, and jsonl.

squad   {"data": [{"paragraphs": [{"context": "...", "qas": [{"question": "...", "answers": [...]}]}]}]}
jsonl   {"question": "...", "context": "...", "answers": [...]} on every line; in the place of a context `para` may name
        a paragraph, {"id": "...", "text": "..."}, of the same file or of another one beside it

Answers are texts, or {"text": "...", "answer_start": 17}, or {"text": [...], "answer_start": [...]}; a question without
one has no answer in the text (SQuAD 2). An example holds question, context and the answers as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..core.errors import InputError
from .base import Example
from .bounds import Budget
from .columns import Layout
from .rows import BadRow, Notes, lines, must_be_text, objects, parsed, text_in

QUESTION = ("question", "context", "answers")  # what a task that answers by a part of a text asks for
PARAGRAPH = "para"


class Wanted(NamedTuple):
    """An answer: its text and, where that is told, the character of the context that it begins at."""

    text: str
    start: int | None


def answers_in(cell: str) -> list[Wanted]:
    """The answers of a cell."""
    return [Wanted(text, start) for text, start in json.loads(cell)]


def as_cell(answers: Sequence[Wanted]) -> str:
    """Answers as text."""
    return json.dumps([list(one) for one in answers], ensure_ascii=False)


def squad(path: Path, layout: Layout, notes: Notes) -> Iterator[Example]:
    """The questions of a file of SQuAD. What is wrong is named by the number of its question."""
    text = "".join(line for _, line in lines(path, notes) if line is not None)
    try:
        data = parsed(text).get("data")
    except BadRow as bad:
        raise InputError(f"{path} {bad}") from None
    if not isinstance(data, list):
        raise InputError(f'{path} has no list "data" of articles, so it is not of SQuAD; jsonl is read, too')
    number = 0
    for article in data:
        for paragraph in _list(path, article, "paragraphs"):
            for asked in _list(path, paragraph, "qas"):
                number += 1
                try:
                    if not isinstance(asked, dict):
                        raise BadRow("is not an object, {...}")
                    context = text_in(paragraph, "context")
                    yield text_in(asked, "question"), context, as_cell(_answers(asked, "answers"))
                except BadRow as bad:
                    notes.problem(path, number, f"question {number} {bad}")


def _list(path: Path, held: Any, name: str) -> list[Any]:
    found = held.get(name) if isinstance(held, dict) else None
    if not isinstance(found, list):
        raise InputError(f'{path}: a part of it has no list "{name}", so it is not of SQuAD')
    return found


def questions(path: Path, layout: Layout, notes: Notes) -> Iterator[Example]:
    """The questions of a jsonl file; its paragraphs are kept for those that name them."""
    question, context, answers = (str(name) for name in layout.columns or layout.wanted)

    def made(row: dict[str, Any]) -> Example | None:
        if question not in row and "id" in row and "text" in row:
            notes.paragraphs[text_in(row, "id")] = text_in(row, "text")
            return None
        if context in row or PARAGRAPH not in row:
            about = text_in(row, context)
        else:
            name = text_in(row, PARAGRAPH)
            if name not in notes.paragraphs:
                raise BadRow(f'names the paragraph {name!r}, which no {{"id": ..., "text": ...}} tells')
            about = notes.paragraphs[name]
        return text_in(row, question), about, as_cell(_answers(row, answers))

    return (example for example in objects(path, notes, made) if example is not None)


def paragraphs_first(paths: Sequence[Path], budget: Budget) -> list[Path]:
    """Files of paragraphs before those of questions about them."""
    return sorted(paths, key=lambda path: not _begins_with_paragraph(path, budget))


def _begins_with_paragraph(path: Path, budget: Budget) -> bool:
    notes = Notes(Budget(budget.bounds))
    first = next(objects(path, notes, lambda row: row), {}) if ".jsonl" in path.suffixes else {}
    return "text" in first and "id" in first


def _answers(row: dict[str, Any], name: str) -> list[Wanted]:
    if row.get("is_impossible") is True:
        return []
    if name not in row:
        raise BadRow(f'has no "{name}"; it has {", ".join(row)}')
    match row[name]:
        case None:
            return []
        case {"text": list(texts), **others}:
            starts = others.get("answer_start") or [None] * len(texts)
            if not isinstance(starts, list) or len(starts) != len(texts):
                raise BadRow(f'"{name}" has not as many "answer_start" as texts')
            found = [_answer({"text": text, "answer_start": start}) for text, start in zip(texts, starts, strict=True)]
        case list(several):
            found = [_answer(one) for one in several]
        case one:
            found = [_answer(one)]
    return list(dict.fromkeys(found))


def _answer(given: Any) -> Wanted:
    if not isinstance(given, dict):
        return Wanted(must_be_text(given, "an answer"), None)
    start = given.get("answer_start")
    if start is not None and (type(start) is not int or start < 0):
        raise BadRow(f'"answer_start" is {str(start)[:30]}; needed is the number of a character, from 0 on')
    return Wanted(must_be_text(given.get("text"), "the text of an answer"), start)
