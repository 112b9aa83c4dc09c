"""Rows of text out of parquet, read by pyarrow, once it is known how much they hold unpacked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ..core.errors import InputError, MissingExtra
from .base import NUMBERS, Example
from .bounds import Budget
from .columns import Layout, called, chosen_of
from .rows import BadRow, Notes, text_in

AT_ONCE = 1 << 26  # bytes of parquet that are unpacked together
MOST_AT_ONCE = 4096  # rows of it
UNCODED = {"DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"}  # encodings of which arrow makes no dictionaries


def parquet_rows(path: Path, layout: Layout, notes: Notes) -> Iterator[Example]:
    try:
        import pyarrow  # type: ignore[import-untyped]
        from pyarrow import parquet
    except ImportError:
        raise MissingExtra.of("pyarrow", "train") from None
    try:
        with parquet.ParquetFile(path) as file:
            schema, metadata = file.schema_arrow, file.metadata
        names = _names(path, layout, schema.names)
        for name, role in zip(names, layout.wanted, strict=True):
            if not (_is_text(pyarrow.types, kind := schema.field(name).type) or _stands(pyarrow.types, kind, role)):
                raise InputError(f"{path}: column {name!r} holds {schema.field(name).type}; needed is text")
        columns = list(dict.fromkeys(names))
        notes.budget.opened(path, packed=True)
        plan = _plan(metadata, columns, notes.budget)
        number = 0
        with parquet.ParquetFile(path, read_dictionary=plan.coded) as file:
            for batch in file.iter_batches(plan.rows, columns=columns):
                for row in _written_out(batch, notes.budget):
                    number += 1
                    try:
                        texts = _texts(row)
                        yield tuple(text_in(texts, name, role) for name, role in zip(names, layout.wanted, strict=True))
                    except BadRow as bad:
                        notes.problem(path, number, str(bad))
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:  # the last: names of columns
        why = str(error).partition("\n")[0]
        raise InputError(f"{path} is not parquet, or damaged: {why}") from None


def _names(path: Path, layout: Layout, names: Sequence[str]) -> list[str]:
    """What the file calls the columns of the task."""
    if layout.columns is None:
        layout = replace(layout, columns=tuple(called(names, one) for one in layout.wanted))
    return [names[place] for place in chosen_of(path, layout, names, len(names))]


class _Plan(NamedTuple):
    """How a parquet file is unpacked."""

    rows: int  # so many together
    coded: list[str]  # columns whose dictionaries stay such: a text of 1 MB that 4,000 rows name is 4 GB written out


def _plan(metadata: Any, columns: Sequence[str], budget: Budget) -> _Plan:
    """By what a file claims to hold, if that is not too much."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    every = [group.column(number) for group in groups for number in range(group.num_columns)]
    chunks = [chunk for chunk in every if chunk.path_in_schema in columns]
    claimed = sum(max(0, chunk.total_uncompressed_size) for chunk in chunks)
    budget.expect(claimed, metadata.num_rows)
    usual = AT_ONCE * max(1, metadata.num_rows) // max(1, claimed)
    # Written out, each text may be as long as its chunk: one repeats the text before it, or names it (a chunk may tell
    # of one encoding and use another).
    uncoded = {chunk.path_in_schema for chunk in chunks if UNCODED.intersection(chunk.encodings)}
    longest = max((chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema in uncoded), default=0)
    rows = min(usual, AT_ONCE // max(1, longest), MOST_AT_ONCE)
    return _Plan(max(1, rows), [name for name in columns if name not in uncoded])


def _written_out(batch: Any, budget: Budget) -> Iterator[dict[str, bytes | None]]:
    """The rows of a batch, once it is known how long they are."""
    from pyarrow import compute, large_binary, string, types

    size, columns = 0, []
    for column in batch.columns:
        coded = types.is_dictionary(column.type)
        values = column.dictionary if coded else column
        if not (types.is_binary(values.type) or _is_text(types, values.type)):
            values = values.cast(string())  # a number, a label of yes and no
        values = values.cast(large_binary())
        lengths = compute.binary_length(values)
        size += compute.sum(lengths.take(column.indices) if coded else lengths).as_py() or 0
        columns.append((values, column.indices if coded else None))
    budget.take(size, batch.num_rows)
    written = [(values if indices is None else values.take(indices)).to_pylist() for values, indices in columns]
    return (dict(zip(batch.schema.names, row, strict=True)) for row in zip(*written, strict=True))


def _texts(row: dict[str, bytes | None]) -> dict[str, str | None]:
    """As text, which parquet says that it is, and arrow believes."""
    try:
        return {name: None if value is None else value.decode() for name, value in row.items()}
    except UnicodeDecodeError as error:
        raise BadRow(f"byte {error.start + 1}, 0x{error.object[error.start]:02x}, is not UTF-8") from None


def _is_text(types: Any, kind: Any) -> bool:
    if types.is_dictionary(kind):
        return _is_text(types, kind.value_type)
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _stands(types: Any, kind: Any, role: str) -> bool:
    """Whether what is no text stands for one: a number, or yes and no, as a label or a score."""
    return role in NUMBERS and bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))
