"""Parts as plain text: for pipes, files, and wherever there are no colours. Pure."""

from __future__ import annotations

import textwrap
import unicodedata
from itertools import zip_longest
from typing import Iterator, Sequence

from .parts import Line, Part, Raw, Table, text_of

_GAP = "  "
#: No column gets narrower than this, however narrow the terminal is.
_NARROWEST = 6


def lines(part: Part, width: int | None = None) -> Iterator[str]:
    """The lines of a part, none longer than `width` where that can be; None: as long as they like."""
    if isinstance(part, str):
        yield from part.split("\n")
    elif isinstance(part, Line):
        text = "".join(map(text_of, part.words))
        yield text if part.whole or width is None or len(text) <= width else text[: width - 1] + "…"
    elif isinstance(part, Raw):
        yield from part.text.splitlines()
    else:
        yield from _table(part, width)


def _table(table: Table, width: int | None) -> Iterator[str]:
    if not table.rows:
        yield table.empty
        return
    rows = _texts(table)
    if width is not None and width < narrowest(table):
        yield from _stacked(rows, width)
        return
    widths = _widths(rows, width)
    for row in rows:
        broken = [_broken(cell, limit) for cell, limit in zip(row, widths)]
        for cells in zip_longest(*broken, fillvalue=""):
            yield _GAP.join(_padded(cell, limit) for cell, limit in zip(cells, widths)).rstrip()


def narrowest(table: Table) -> int:
    """Columns of a terminal below which the table is drawn as one line for each cell."""
    found = enumerate(_widths(_texts(table), None))
    widths = [width if table.pictures and at not in table.pictures else min(width, _NARROWEST) for at, width in found]
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _texts(table: Table) -> list[list[str]]:
    """The names of the columns first."""
    return [[text_of(cell) for cell in row] for row in [list(table.columns), *table.rows]]


def _stacked(rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """`task: worker-0`, a line for each cell, and an empty one between two rows."""
    for number, row in enumerate(rows[1:]):
        if number:
            yield ""
        for name, cell in zip(rows[0], row):
            yield from _broken(f"{name}: {cell}", width)


def _widths(rows: Sequence[Sequence[str]], width: int | None) -> list[int]:
    """Of the columns: as wide as their cells are, the widest narrowed until all fit."""
    widths = [max(_columns(line) for cell in column for line in cell.split("\n")) for column in zip(*rows)]
    room = None if width is None else max(width - len(_GAP) * (len(widths) - 1), _NARROWEST * len(widths))
    while room is not None and sum(widths) > room:
        widths[max(range(len(widths)), key=widths.__getitem__)] -= 1
    return widths


def _broken(cell: str, limit: int) -> list[str]:
    """At spaces, else anywhere."""
    found: list[str] = []
    for line in cell.split("\n"):
        found += textwrap.wrap(line, max(1, limit), break_on_hyphens=False) or [""]
    return found


def _padded(cell: str, limit: int) -> str:
    return cell + " " * (limit - _columns(cell))


def _columns(text: str) -> int:
    """How many cells of a terminal a text takes: characters of East Asia take two, accents none."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(bool(unicodedata.combining(character)) for character in text)
