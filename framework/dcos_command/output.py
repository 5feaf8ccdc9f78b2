"""Print words, lines and tables of commands as plain text, fitted to a terminal."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import textwrap
import threading
import time
import unicodedata
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from types import FrameType
from typing import IO, Iterable, Iterator, Sequence, TextIO, Union

from tf_executor.contract.states import Tone, tone_of
from tf_executor.contract.text import encodable

from .errors import UsageError

#: Style of a tone on a terminal.
TONE_STYLES = {
    Tone.GOOD: "green",
    Tone.GOING: "green",
    Tone.BUSY: "cyan",
    Tone.WAIT: "yellow",
    Tone.BAD: "red",
    Tone.NEUTRAL: "",
}


@dataclass(frozen=True)
class Word:
    """Text with a meaning: the value of a `Tone`, "dim", "strong", or empty."""

    text: str
    meaning: str = ""


Cell = Union[str, Word]


def status_word(text: str) -> Word:
    """Return a status as a word with its tone."""
    return Word(text, tone_of(text).value)


def dim(text: str) -> Word:
    """Return a word that is secondary information."""
    return Word(text, "dim")


def local_time(seconds: float) -> str:
    """Format a Unix time as local date and time."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
    except (OverflowError, ValueError, OSError):  # no calendar reaches so far
        return "unknown time"


@dataclass(frozen=True)
class Line:
    """Line of several words. If not `wrap`, it is cut off on a narrow terminal."""

    words: tuple[Cell, ...]
    wrap: bool = True


@dataclass(frozen=True)
class Table:
    """Table fitted to the terminal: long texts wrap, charts are cut off.

    `charts`: indexes of columns drawn with characters, such as bars. Only these columns are cut off, so that the
    other columns keep one line.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    #: Shown instead of a table without rows.
    empty: str = ""
    charts: Sequence[int] = ()


#: Invisible characters that change the order or the lines of others (Unicode, general categories Cf, Zl and Zp).
#: The joiners of words and emoji (U+200C, U+200D) stay.
_INVISIBLE = "\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
#: Terminal commands (ECMA-48), except backspace, tab, line end, return and colours.
_TERMINAL_COMMANDS = re.compile(rf"\x1b(?!\[[0-9;:]*m)|[\x00-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f{_INVISIBLE}]")
#: All control characters except tab, line end and DEL, which has no effect and which JSON does not escape.
_CONTROLS = re.compile(rf"\x1b(?:\[[0-?]*[ -/]*[@-~])?|[\x00-\x08\x0b-\x1f\x80-\x9f{_INVISIBLE}]")


@dataclass(frozen=True)
class Raw:
    """Another program's text, such as task output: written without a line end."""

    text: str

    def on(self, out: IO[str]) -> str:
        """On a terminal, remove commands that could alter its input; keep colours."""
        return encodable(_TERMINAL_COMMANDS.sub("", self.text) if out.isatty() else self.text)


Block = Union[str, Line, Table, Raw]
Renderable = Iterable[Block]


def cell_text(cell: Cell) -> str:
    """Return the cell's text without control characters, which tasks may have written."""
    return remove_controls(cell.text if isinstance(cell, Word) else cell)


def remove_controls(text: str) -> str:
    """Remove control characters except tab and line end; escape lone surrogates."""
    return text if text.isprintable() else encodable(_CONTROLS.sub("", text))


_GAP = "  "
#: Longest words that columns do not break: a name or id that fills the cell; a word of a sentence.
_MAX_NAME, _MAX_WORD = 40, 24
#: Minimum width of a chart in characters.
_CHART_WIDTH = 6


def render_lines(part: Block, width: int | None = None) -> Iterator[str]:
    """Yield a part's lines, up to `width` long where possible; None: unlimited."""
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
            padded = (cell + " " * (limit - _terminal_width(cell)) for cell, limit in zip(cells, widths))
            yield _GAP.join(padded).rstrip()


def minimum_width(table: Table) -> int:
    """Return the width below which the table is printed with one line for each cell."""
    widths = _minimum_widths(table)
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def column_widths(table: Table, width: int | None) -> list[int]:
    """Narrow the widest columns until all fit, none below its minimum; return widths."""
    widths, minimum = _full_widths(table), _minimum_widths(table)
    available = sum(widths) if width is None else max(width - len(_GAP) * (len(widths) - 1), sum(minimum))
    while sum(widths) > available:
        widths[max((at for at in range(len(widths)) if widths[at] > minimum[at]), key=widths.__getitem__)] -= 1
    return widths


def _full_widths(table: Table) -> list[int]:
    columns = zip(*_texts(table))
    return [max(_terminal_width(line) for cell in column for line in cell.split("\n")) for column in columns]


def _minimum_widths(table: Table) -> list[int]:
    if table.charts:
        full = enumerate(_full_widths(table))
        return [min(width, _CHART_WIDTH) if at in table.charts else width for at, width in full]
    return [max(map(_unbreakable_width, column)) for column in zip(*_texts(table))]


def _unbreakable_width(cell: str) -> int:
    """Return the width of the cell's longest word, limited where words are broken."""
    words = cell.split()
    return min(max(map(_terminal_width, words), default=0), _MAX_NAME if len(words) == 1 else _MAX_WORD)


def _texts(table: Table) -> list[list[str]]:
    """Return the texts of the heading row and of all other rows."""
    return [[cell_text(cell) for cell in row] for row in [list(table.columns), *table.rows]]


def _stacked(rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Yield a line such as `task: worker-0` per cell, and an empty line between rows."""
    for number, row in enumerate(rows[1:]):
        if number:
            yield ""
        for name, cell in zip(rows[0], row):
            if name or cell:
                yield from _wrapped(f"{name}: {cell}" if name else cell, width)


def _wrapped(cell: str, limit: int) -> list[str]:
    """Break lines at spaces, words that are longer than a line also after a slash."""
    lines = re.sub(rf"\S{{{limit + 1},}}", lambda word: word[0].replace("/", "/\0 "), cell).split("\n")
    parts = (part for line in lines for part in textwrap.wrap(line, max(1, limit), break_on_hyphens=False) or [""])
    return [part.replace("\0 ", "").replace("\0", "") for part in parts]


def _terminal_width(text: str) -> int:
    """Return the width in terminal cells: East Asian characters take two, accents 0."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(bool(unicodedata.combining(character)) for character in text)


class _OutputClosed(BaseException):
    """Interrupts a blocked call; not an Exception, so that no handler catches it."""


def _watch(descriptor: int, end: int, closed: threading.Event, main: int) -> None:
    """Poll both for a hang-up (POSIX). If `descriptor` hangs up, signal thread `main`."""
    poll = select.poll()
    poll.register(descriptor, 0)
    poll.register(end, 0)
    if descriptor in dict(poll.poll()):
        closed.set()
        signal.pthread_kill(main, signal.SIGPIPE)


def _watchable_descriptor(out: TextIO) -> int | None:
    able = hasattr(select, "poll") and hasattr(signal, "pthread_kill")
    if not able or threading.current_thread() is not threading.main_thread():
        return None
    try:
        return out.fileno()
    except (OSError, ValueError):
        return None


class Screen:
    """Screen for plain text; `dcos-tensorflow` has a subclass with colours."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        #: Whether output can be redrawn.
        self.is_interactive = out.isatty()

    def show(self, parts: Renderable) -> None:
        """Print and flush each part."""
        for part in parts:
            if isinstance(part, Raw):
                self._out.write(part.on(self._out))
            else:
                self._out.writelines(f"{line}\n" for line in render_lines(part, self._width()))
            self._out.flush()

    @contextmanager
    def quit_on_close(self) -> Iterator[None]:
        """Raise BrokenPipeError in the block when the reader of the output closes it.

        Without poll or signals, or outside the main thread, only the next write raises it.
        """
        descriptor = _watchable_descriptor(self._out)
        if descriptor is None:
            yield
            return
        closed = threading.Event()

        def handle(_number: int, _frame: FrameType | None) -> None:
            if closed.is_set():  # else a write to another broken connection, which raises its own error
                raise _OutputClosed

        before = signal.signal(signal.SIGPIPE, handle)
        end, stop = os.pipe()
        main = threading.main_thread().ident
        thread = threading.Thread(target=_watch, args=(descriptor, end, closed, main), daemon=True)
        thread.start()
        try:
            yield
        except _OutputClosed:
            raise BrokenPipeError("the reader has closed the pipe") from None
        finally:
            signal.signal(signal.SIGPIPE, before if before is not None else signal.SIG_IGN)
            os.close(stop)
            thread.join()
            os.close(end)

    def show_live(self, frames: Iterable[Renderable]) -> None:
        """Draw each frame in the place of the previous frame; the last frame stays."""
        drawn = 0
        for frame in frames:
            lines = [line for part in frame for line in render_lines(part, self._width())]
            self._out.write(f"\x1b[{drawn}A\x1b[J" if drawn else "")
            self._out.writelines(f"{line}\n" for line in lines)
            self._out.flush()
            drawn = len(lines)

    def _width(self) -> int | None:
        """Return the terminal's present width; None: unlimited."""
        return shutil.get_terminal_size().columns if self.is_interactive else None


def confirm(question: str, answers: TextIO, out: TextIO) -> None:
    """Ask for a confirmation. Raise UsageError if it is denied, or without a terminal."""
    if answers.isatty() and out.isatty():
        out.write(f"{question} [y/N] ")
        out.flush()
        if answers.readline().strip().lower() in ("y", "yes"):
            return
        raise UsageError("aborted")
    raise UsageError("aborted; use `--yes` to skip the confirmation")
