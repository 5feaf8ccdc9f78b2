"""Parts as plain text: for pipes, files, and wherever there are no colours. Pure."""

from __future__ import annotations

import textwrap
import unicodedata
from itertools import zip_longest
from typing import Iterator, Sequence

from .parts import Line, Part, Raw, Table, plain, text_of

_GAP = "  "
#: Longest words that are not broken for the sake of columns: names and ids, which stand alone; those of sentences.
_NAME, _WORD = 40, 24
#: Characters that are enough for a picture.
_PICTURE = 6


def lines(part: Part, width: int | None = None) -> Iterator[str]:
    """The lines of a part, none longer than `width` where that can be; None: as long as they like."""
    if isinstance(part, str):
        yield from plain(part).split("\n")
    elif isinstance(part, Line):
        text = "".join(map(text_of, part.words))
        if width is None or len(text) <= width:
            yield text
        elif part.whole:
            yield from textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [text]
        else:
            yield text[: width - 1] + "…"
    elif isinstance(part, Raw):
        yield from part.text.splitlines()
    else:
        yield from _table(part, width)


def _table(table: Table, width: int | None) -> Iterator[str]:
    if not table.rows:
        yield plain(table.empty)
        return
    rows = _texts(table)
    if width is not None and width < narrowest(table):
        yield from _stacked(rows, width)
        return
    widths = widths_of(table, width)
    for row in rows:
        broken = [_broken(cell, limit) for cell, limit in zip(row, widths)]
        for cells in zip_longest(*broken, fillvalue=""):
            yield _GAP.join(_padded(cell, limit) for cell, limit in zip(cells, widths)).rstrip()


def narrowest(table: Table) -> int:
    """Columns of a terminal below which the table is drawn as one line for each cell."""
    widths = _least(table)
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def widths_of(table: Table, width: int | None) -> list[int]:
    """Of the columns: as wide as their cells are, the widest narrowed until all fit, none more than it can bear."""
    widths, least = _whole(table), _least(table)
    room = sum(widths) if width is None else max(width - len(_GAP) * (len(widths) - 1), sum(least))
    while sum(widths) > room:
        widths[max((at for at in range(len(widths)) if widths[at] > least[at]), key=widths.__getitem__)] -= 1
    return widths


def _whole(table: Table) -> list[int]:
    columns = zip(*_texts(table))
    return [max(_columns(line) for cell in column for line in cell.split("\n")) for column in columns]


def _least(table: Table) -> list[int]:
    """What the columns cannot do without."""
    if table.pictures:
        return [min(width, _PICTURE) if at in table.pictures else width for at, width in enumerate(_whole(table))]
    return [max(map(_longest, column)) for column in zip(*_texts(table))]


def _longest(cell: str) -> int:
    """Of its words: what of the longest is not to be broken."""
    words = cell.split()
    return min(max(map(_columns, words), default=0), _NAME if len(words) == 1 else _WORD)


def _texts(table: Table) -> list[list[str]]:
    """The names of the columns first."""
    return [[text_of(cell) for cell in row] for row in [list(table.columns), *table.rows]]


def _stacked(rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """`task: worker-0`, a line for each cell, and an empty one between two rows."""
    for number, row in enumerate(rows[1:]):
        if number:
            yield ""
        for name, cell in zip(rows[0], row):
            if name or cell:
                yield from _broken(f"{name}: {cell}" if name else cell, width)


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
