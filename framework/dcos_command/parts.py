"""What a command shows, before it is drawn: lines, tables and texts of words that have a meaning, not a colour.

Plain text and colours are drawn from the same parts; see render.py, and the richer one of `dcos-tensorflow`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import IO, Iterable, Sequence, Union

#: Meaning of a word of the scheduler's; any other has none.
_MEANING = {
    **dict.fromkeys(("COMPLETE", "RUNNING", "FINISHED", "succeeded", "launched", "pass"), "good"),
    **dict.fromkeys(("PREPARED", "STARTING", "STARTED", "STAGING", "IN_PROGRESS", "KILLING"), "busy"),
    **dict.fromkeys(("PENDING", "WAITING", "DELAYED", "PAUSED", "PAUSING", "stopped", "UNREACHABLE"), "wait"),
    **dict.fromkeys(("ERROR", "FAILED", "LOST", "GONE", "DROPPED", "KILLED", "failed", "fail"), "bad"),
}


@dataclass(frozen=True)
class Word:
    """Text with a meaning: "good", "busy", "wait", "bad", "dim", "strong", or none."""

    text: str
    meaning: str = ""


Cell = Union[str, Word]


def status(text: str) -> Word:
    """A status, of whatever it is."""
    return Word(text, _MEANING.get(text, ""))


def dim(text: str) -> Word:
    """Something that is there to be found, not to be read."""
    return Word(text, "dim")


@dataclass(frozen=True)
class Line:
    """One line of several words, next to each other. `whole` False: a terminal that is too narrow cuts it off."""

    words: tuple[Cell, ...]
    whole: bool = True


@dataclass(frozen=True)
class Table:
    """Columns fit the terminal: cells are broken into several lines, never cut, but for pictures.

    `pictures`: numbers of columns, from 0, that are drawn with characters, such as bars. Where there are any, they
    become smaller for the others, which keep one line each.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    #: Shown instead of a table without rows.
    empty: str = ""
    pictures: Sequence[int] = ()


#: What is not seen, and changes how other characters are: their order, where lines end (Unicode, general categories Cf,
#: Zl and Zp). The joiners of words and pictures (U+200C, U+200D) stay.
_UNSEEN = "\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
#: What terminals obey (ECMA-48), but for backspace, tab, line end, return, and the choice of colours.
_COMMANDS = re.compile(rf"\x1b(?!\[[0-9;:]*m)|[\x00-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f{_UNSEEN}]")
#: The same in what is ours: also those, but for tab and line end. DEL does nothing, and JSON does not escape it.
_MARKS = re.compile(rf"\x1b(?:\[[0-9;:]*m)?|[\x00-\x08\x0b-\x1f\x80-\x9f{_UNSEEN}]")


@dataclass(frozen=True)
class Raw:
    """Of somebody else, such as a task's output: written as it is, with nothing after it."""

    text: str

    def on(self, out: IO[str]) -> str:
        """A terminal gets colours and tabs, and no command: those can write to the clipboard, or to its input."""
        return _COMMANDS.sub("", self.text) if out.isatty() else self.text


Part = Union[str, Line, Table, Raw]
Parts = Iterable[Part]


def text_of(cell: Cell) -> str:
    """Without its meaning, and without what terminals obey: words of tasks and their programs are among ours."""
    return plain(cell.text if isinstance(cell, Word) else cell)


def plain(text: str) -> str:
    """Without control characters, but for tab and line end, and without what changes how others are shown."""
    return text if text.isprintable() else _MARKS.sub("", text)
