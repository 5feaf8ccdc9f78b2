"""What a command prints: parts, their plain text, and the screen that shows them."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import textwrap
import threading
import unicodedata
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from types import FrameType
from typing import IO, ContextManager, Iterable, Iterator, Sequence, TextIO, Union

from .errors import UsageError

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


def status_word(text: str) -> Word:
    """A status, of whatever it is."""
    return Word(text, _MEANING.get(text, ""))


def dim(text: str) -> Word:
    """Something that is there to be found, not to be read."""
    return Word(text, "dim")


@dataclass(frozen=True)
class Line:
    """One line of several words, next to each other. `whole` False: a terminal that is too narrow cuts it off."""

    words: tuple[Cell, ...]
    wrap: bool = True


@dataclass(frozen=True)
class Table:
    """Columns fit the terminal: cells are broken into several lines, never cut, but for charts.

    `charts`: numbers of columns, from 0, that are drawn with characters, such as bars. Where there are any, they
    become smaller for the others, which keep one line each.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    #: Shown instead of a table without rows.
    empty: str = ""
    charts: Sequence[int] = ()


#: What is not seen, and changes how other characters are: their order, where lines end (Unicode, general categories Cf,
#: Zl and Zp). The joiners of words and charts (U+200C, U+200D) stay.
_INVISIBLE = "\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
#: What terminals obey (ECMA-48), but for backspace, tab, line end, return, and the choice of colours.
_TERMINAL_COMMANDS = re.compile(rf"\x1b(?!\[[0-9;:]*m)|[\x00-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f{_INVISIBLE}]")
#: The same in what is ours: also those, but for tab and line end. DEL does nothing, and JSON does not escape it.
_CONTROLS = re.compile(rf"\x1b(?:\[[0-9;:]*m)?|[\x00-\x08\x0b-\x1f\x80-\x9f{_INVISIBLE}]")


@dataclass(frozen=True)
class Raw:
    """Of somebody else, such as a task's output: written as it is, with nothing after it."""

    text: str

    def on(self, out: IO[str]) -> str:
        """A terminal gets colours and tabs, and no command: those can write to the clipboard, or to its input."""
        return _TERMINAL_COMMANDS.sub("", self.text) if out.isatty() else self.text


Block = Union[str, Line, Table, Raw]
Renderable = Iterable[Block]


def cell_text(cell: Cell) -> str:
    """Without its meaning, and without what terminals obey: words of tasks and their programs are among ours."""
    return remove_controls(cell.text if isinstance(cell, Word) else cell)


def remove_controls(text: str) -> str:
    """Without control characters, but for tab and line end, and without what changes how others are shown."""
    return text if text.isprintable() else _CONTROLS.sub("", text)


_GAP = "  "
#: Longest words that are not broken for the sake of columns: names and ids, which stand alone; those of sentences.
_MAX_NAME, _MAX_WORD = 40, 24
#: Characters that are enough for a picture.
_CHART_WIDTH = 6


def render_lines(part: Block, width: int | None = None) -> Iterator[str]:
    """The lines of a part, none longer than `width` where that can be; None: as long as they like."""
    if isinstance(part, str):
        yield from remove_controls(part).split("\n")
    elif isinstance(part, Line):
        text = "".join(map(cell_text, part.words))
        if width is None or len(text) <= width:
            yield text
        elif part.wrap:
            yield from textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [text]
        else:
            yield text[: width - 1] + "…"
    elif isinstance(part, Raw):
        yield from part.text.splitlines()
    else:
        yield from _table(part, width)


def _table(table: Table, width: int | None) -> Iterator[str]:
    if not table.rows:
        yield remove_controls(table.empty)
        return
    rows = _texts(table)
    if width is not None and width < minimum_width(table):
        yield from _stacked(rows, width)
        return
    widths = column_widths(table, width)
    for row in rows:
        broken = [_wrapped(cell, limit) for cell, limit in zip(row, widths)]
        for cells in zip_longest(*broken, fillvalue=""):
            yield _GAP.join(_padded(cell, limit) for cell, limit in zip(cells, widths)).rstrip()


def minimum_width(table: Table) -> int:
    """Columns of a terminal below which the table is drawn as one line for each cell."""
    widths = _minimum_widths(table)
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def column_widths(table: Table, width: int | None) -> list[int]:
    """Of the columns: as wide as their cells are, the widest narrowed until all fit, none more than it can bear."""
    widths, least = _full_widths(table), _minimum_widths(table)
    room = sum(widths) if width is None else max(width - len(_GAP) * (len(widths) - 1), sum(least))
    while sum(widths) > room:
        widths[max((at for at in range(len(widths)) if widths[at] > least[at]), key=widths.__getitem__)] -= 1
    return widths


def _full_widths(table: Table) -> list[int]:
    columns = zip(*_texts(table))
    return [max(_terminal_width(line) for cell in column for line in cell.split("\n")) for column in columns]


def _minimum_widths(table: Table) -> list[int]:
    """What the columns cannot do without."""
    if table.charts:
        return [
            min(width, _CHART_WIDTH) if at in table.charts else width for at, width in enumerate(_full_widths(table))
        ]
    return [max(map(_unbreakable_width, column)) for column in zip(*_texts(table))]


def _unbreakable_width(cell: str) -> int:
    """Of its words: what of the longest is not to be broken."""
    words = cell.split()
    return min(max(map(_terminal_width, words), default=0), _MAX_NAME if len(words) == 1 else _MAX_WORD)


def _texts(table: Table) -> list[list[str]]:
    """The names of the columns first."""
    return [[cell_text(cell) for cell in row] for row in [list(table.columns), *table.rows]]


def _stacked(rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """`task: worker-0`, a line for each cell, and an empty one between two rows."""
    for number, row in enumerate(rows[1:]):
        if number:
            yield ""
        for name, cell in zip(rows[0], row):
            if name or cell:
                yield from _wrapped(f"{name}: {cell}" if name else cell, width)


def _wrapped(cell: str, limit: int) -> list[str]:
    """At spaces, else anywhere."""
    found: list[str] = []
    for line in cell.split("\n"):
        found += textwrap.wrap(line, max(1, limit), break_on_hyphens=False) or [""]
    return found


def _padded(cell: str, limit: int) -> str:
    return cell + " " * (limit - _terminal_width(cell))


def _terminal_width(text: str) -> int:
    """How many cells of a terminal a text takes: characters of East Asia take two, accents none."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(bool(unicodedata.combining(character)) for character in text)


class _OutputClosed(BaseException):
    """No error of whatever was being done: nobody on the way is to handle it as one."""


@contextmanager
def quit_on_close(out: TextIO) -> Iterator[None]:
    """Inside, BrokenPipeError is raised as soon as nobody reads `out` any more, whatever is being waited for.

    Where that cannot be watched (no poll, no signals, no main thread), the next line that is printed tells, as ever.
    """
    number = _watchable_descriptor(out)
    if number is None:
        yield
        return
    left = threading.Event()

    def told(_number: int, _frame: FrameType | None) -> None:
        if left.is_set():  # else somebody has written to a connection that is broken, and learns it from the write
            raise _OutputClosed

    before = signal.signal(signal.SIGPIPE, told)
    end, ours = os.pipe()
    thread = threading.Thread(target=_watch, args=(number, end, left), daemon=True)
    thread.start()
    try:
        yield
    except _OutputClosed:
        raise BrokenPipeError("nobody reads any more") from None
    finally:
        signal.signal(signal.SIGPIPE, before if before is not None else signal.SIG_IGN)
        os.close(ours)
        thread.join()
        os.close(end)


def _watch(number: int, end: int, left: threading.Event) -> None:
    """Until one of the two is hung up; of a pipe's other end that is told unasked (POSIX, poll)."""
    poll = select.poll()
    poll.register(number, 0)
    poll.register(end, 0)
    if number in dict(poll.poll()):
        left.set()
        signal.pthread_kill(_main_thread(), signal.SIGPIPE)


def _main_thread() -> int:
    found = threading.main_thread().ident
    assert found is not None, "it runs"
    return found


def _watchable_descriptor(out: TextIO) -> int | None:
    able = hasattr(select, "poll") and hasattr(signal, "pthread_kill")
    if not able or threading.current_thread() is not threading.main_thread():
        return None
    try:
        return out.fileno()
    except (OSError, ValueError):
        return None


class Screen:
    """Plain text. `dcos-tensorflow` has one with colours, for terminals."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        #: Whether things can be drawn again.
        self.is_interactive = out.isatty()

    def show(self, parts: Renderable) -> None:
        """At once, also through a pipe."""
        for part in parts:
            if isinstance(part, Raw):
                self._out.write(part.on(self._out))
            else:
                self._out.writelines(f"{line}\n" for line in render_lines(part, self._width()))
            self._out.flush()

    def quit_on_close(self) -> ContextManager[None]:
        """Inside, BrokenPipeError is raised when nobody reads any more, even if nothing is shown."""
        return quit_on_close(self._out)

    def show_live(self, frames: Iterable[Renderable]) -> None:
        """Each in the place of the one before; the last one stays."""
        drawn = 0
        for frame in frames:
            lines = list(self._lines(frame))
            self._out.write(f"\x1b[{drawn}A\x1b[J" if drawn else "")
            self._out.writelines(f"{line}\n" for line in lines)
            self._out.flush()
            drawn = len(lines)

    def _lines(self, parts: Renderable) -> Iterator[str]:
        for part in parts:
            yield from render_lines(part, self._width())

    def _width(self) -> int | None:
        """Asked each time: windows change."""
        return shutil.get_terminal_size().columns if self.is_interactive else None


def confirm(question: str, answers: TextIO, out: TextIO) -> None:
    """Return when the person says yes. Raise UsageError when not, or when nobody is there to be asked."""
    if answers.isatty() and out.isatty():
        out.write(f"{question} [y/N] ")
        out.flush()
        if answers.readline().strip().lower() in ("y", "yes"):
            return
        raise UsageError("nothing was done")
    raise UsageError("nothing was done; to do it without being asked: --yes")
