"""How much of a file is read: a few bytes of gzip or parquet may stand for more text than there is memory.

Everything is counted while it is unpacked, so that a file is refused before it is held.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..core.errors import InputError, counted

ALWAYS = 1 << 28  # bytes that any compressed file may unpack to, however small it is


@dataclass(frozen=True)
class Bounds:
    """What the files of a split may hold; `Files` has a setting for each."""

    line: int  # bytes
    rows: int
    text: int  # bytes
    ratio: int


class Budget:
    """What of its bounds a split has used up."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._path = Path()
        self._rows = self._text = self._unpacked = 0
        self._packed: int | None = None  # bytes of a compressed file
        self._most = 0  # bytes that it may unpack to

    def opened(self, path: Path, *, packed: bool) -> None:
        """The next file."""
        self._path, self._unpacked = path, 0
        self._packed = path.stat().st_size if packed else None
        self._most = max(ALWAYS, (self._packed or 0) * self.bounds.ratio)

    @property
    def left(self) -> int:
        """Bytes that may still be read of this file."""
        whole = self.bounds.text - self._text
        return whole if self._packed is None else min(whole, self._most - self._unpacked)

    def line(self, size: int, number: int) -> None:
        """A line of so many bytes, or the beginning of a longer one."""
        if size > self.bounds.line:
            raise InputError(
                f"{self._path}:{number}: a line, or a row of several, of more than {self.bounds.line:,} bytes, the "
                "most that is read; is the file of another format? If it is meant so, raise data.max_line"
            )

    def take(self, size: int, rows: int = 1) -> None:
        """So many bytes of text and rows more."""
        self._rows += rows
        self._text += size
        self._unpacked += size
        self.expect(0, 0)

    def expect(self, size: int, rows: int) -> None:
        """Refuse a file that claims more than may still be read."""
        if self._rows + rows > self.bounds.rows:
            raise InputError(
                f"{self._path}: with it there are more than {counted(self.bounds.rows, 'row')}, the most that is read "
                "of a split; give a part of the data, or raise data.max_rows"
            )
        if self._text + size > self.bounds.text:
            raise InputError(
                f"{self._path}: with it there are more than {self.bounds.text:,} bytes of text, the most that is held "
                "of a split; give a part of the data, or raise data.max_text if there is memory for it"
            )
        if self._packed is not None and self._unpacked + size > self._most:
            raise InputError(
                f"{self._path}: its {self._packed:,} bytes unpack to more than {self._most:,}, which text hardly does; "
                f"if it is meant so, raise data.max_ratio above {self.bounds.ratio:,}"
            )
