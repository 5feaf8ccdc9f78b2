"""Parts on a terminal: tables that fit it, and colours, unless NO_COLOR says not to."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from dcos_command.parts import Cell, Line, Part, Parts, Raw, Table, Word, plain, text_of
from dcos_command.render import lines, narrowest, widths_of
from dcos_command.screen import Screen

_STYLES = {"good": "green", "busy": "cyan", "wait": "yellow", "bad": "red", "dim": "dim", "strong": "bold"}


class ColourScreen(Screen):
    """Standard output, which is a terminal."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__(sys.stdout)
        self._console = console or Console(highlight=False)
        self.live = True

    def show(self, parts: Parts) -> None:
        for part in parts:
            if isinstance(part, Raw):
                self._console.file.write(part.on(self._console.file))
                self._console.file.flush()
            else:
                shown = drawn(self._fitting(part), self._console.width)
                self._console.print(Group(shown))  # alone a Text would lose how it is to be broken

    def play(self, frames: Iterable[Parts]) -> None:
        with Live(console=self._console, auto_refresh=False) as live:
            for frame in frames:
                width = self._console.width
                live.update(Group(*(drawn(self._fitting(part), width) for part in frame)), refresh=True)

    def _fitting(self, part: Part) -> Part:
        """Itself; of a table that no terminal so narrow has room for, its cells one below the other."""
        width = self._console.width
        narrow = isinstance(part, Table) and width < narrowest(part)
        return "\n".join(lines(part, width)) if narrow else part


def drawn(part: Part, width: int) -> RenderableType:
    """What rich draws for it on so many columns."""
    if isinstance(part, Table):
        return _table(part, width) if part.rows else Text(plain(part.empty))
    if isinstance(part, Line):
        text = Text.assemble(*(_text(word) for word in part.words))
        text.no_wrap, text.overflow = not part.whole, "fold" if part.whole else "ellipsis"
        return text
    return Text(part.text if isinstance(part, Raw) else plain(part))


def _table(table: Table, width: int) -> RichTable:
    drawn_table = RichTable(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)  # 2 between columns
    for column, room in zip(table.columns, widths_of(table, width), strict=True):
        drawn_table.add_column(column, overflow="fold", width=room)
    for row in table.rows:
        drawn_table.add_row(*(_Picture(cell) if at in table.pictures else _text(cell) for at, cell in enumerate(row)))
    return drawn_table


def _text(cell: Cell) -> Text:
    return Text(text_of(cell), _STYLES.get(cell.meaning, "") if isinstance(cell, Word) else "")


class _Picture:
    """A cell that is drawn with characters: as much of them as there is room for, evenly chosen."""

    def __init__(self, cell: Cell) -> None:
        self._text = _text(cell)

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        whole = self._text.plain
        width = min(len(whole), options.max_width)
        chosen = (whole[int((at + 0.5) * len(whole) / width)] for at in range(width))
        yield Text("".join(chosen), self._text.style, no_wrap=True)

    def __rich_measure__(self, _console: Console, _options: ConsoleOptions) -> Measurement:
        return Measurement(min(4, len(self._text.plain)), len(self._text.plain))
