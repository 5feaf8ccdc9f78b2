"""Coloured output on a terminal: text, tables and live views, drawn by rich."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from dcos_command.output import (
    TONE_STYLES,
    Block,
    Cell,
    Line,
    Raw,
    Renderable,
    Screen,
    Table,
    Word,
    cell_text,
    column_widths,
    minimum_width,
    remove_controls,
    render_lines,
)

_STYLES = {**{tone.value: style for tone, style in TONE_STYLES.items()}, "dim": "dim", "strong": "bold"}


class ColourScreen(Screen):
    """Coloured screen: standard output, which is a terminal."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__(sys.stdout)
        self._console = console or Console(highlight=False)
        self.is_interactive = True

    def show(self, parts: Renderable) -> None:
        for part in parts:
            if isinstance(part, Raw):
                self._console.file.write(part.on(self._console.file))
                self._console.file.flush()
            else:
                rendered = rich_renderable(self._fitting(part), self._console.width)
                self._console.print(Group(rendered))  # print would ignore the overflow of a single Text

    def show_live(self, frames: Iterable[Renderable]) -> None:
        with Live(console=self._console, auto_refresh=False) as live:
            for frame in frames:
                width = self._console.width
                live.update(Group(*(rich_renderable(self._fitting(part), width) for part in frame)), refresh=True)

    def _fitting(self, part: Block) -> Block:
        """Return the part; a table that is too wide becomes one line for each cell."""
        width = self._console.width
        narrow = isinstance(part, Table) and width < minimum_width(part)
        return "\n".join(render_lines(part, width)) if narrow else part


def rich_renderable(part: Block, width: int) -> RenderableType:
    """Convert a part to an object that rich draws on `width` columns."""
    if isinstance(part, Table):
        return _table(part, width) if part.rows else Text(remove_controls(part.empty))
    if isinstance(part, Line):
        text = Text.assemble(*(_text(word) for word in part.words))
        text.no_wrap, text.overflow = not part.wrap, "fold" if part.wrap else "ellipsis"
        return text
    return Text(part.text if isinstance(part, Raw) else remove_controls(part))


def _table(table: Table, width: int) -> RichTable:
    result = RichTable(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)  # 2 between columns
    for column, cell_width in zip(table.columns, column_widths(table, width), strict=True):
        result.add_column(column, overflow="fold", width=cell_width)
    for row in table.rows:
        result.add_row(*(_Chart(cell) if at in table.charts else _text(cell) for at, cell in enumerate(row)))
    return result


def _text(cell: Cell) -> Text:
    return Text(cell_text(cell), _STYLES.get(cell.meaning, "") if isinstance(cell, Word) else "")


class _Chart:
    """A cell with a chart of characters; a narrow cell shows an even selection."""

    def __init__(self, cell: Cell) -> None:
        self._text = _text(cell)

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        text = self._text.plain
        width = min(len(text), options.max_width)
        sample = (text[int((at + 0.5) * len(text) / width)] for at in range(width))
        yield Text("".join(sample), self._text.style, no_wrap=True)

    def __rich_measure__(self, _console: Console, _options: ConsoleOptions) -> Measurement:
        return Measurement(min(4, len(self._text.plain)), len(self._text.plain))
