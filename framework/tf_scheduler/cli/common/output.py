"""`--json` of the commands that ask no service. Before the command, or as a variable, it counts as well."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from dcos_command.main import plain_screen
from dcos_command.output import (
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
from tf_scheduler.api.http.auth import Policy
from tf_scheduler.logging_setup import SecretRedactor
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.options.load import resolve
from tf_scheduler.service.secrets import KNOWN_SOURCES, known_secrets

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


_Command = TypeVar("_Command", bound=Callable[..., Any])


def json_switch(told: str) -> Callable[[_Command], _Command]:
    """The option, as the parameter `as_json`; `told`: its help."""
    return click.option("--json", "as_json", is_flag=True, callback=_inherit_json, help=told)


def _inherit_json(context: click.Context, _parameter: click.Parameter, value: bool) -> bool:
    """What it says for a group, it says for the group's commands."""
    before = context.ensure_object(dict)
    before["as_json"] = value or bool(before.get("as_json"))
    return bool(before["as_json"])


json_option = json_switch("Print JSON.")


# --- unread
# Output that nobody reads any more, as of `... | head`: it is dropped, and what is done goes on.


class _LossyWriter(io.FileIO):
    """Writes until that fails; from then on nothing is written. `told`: whoever writes hears why, once.

    That nobody reads any more is never told.
    """

    def __init__(self, descriptor: int, *, told: bool) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._told, self._failed = told, False

    def write(self, data: ReadableBuffer, /) -> int | None:  # type: ignore[override]  # None: not now (io.RawIOBase)
        written = None
        try:
            written = None if self._failed else super().write(data)
        except OSError as error:
            self._failed = True
            if self._told and not isinstance(error, BrokenPipeError):
                raise
        return memoryview(data).nbytes if self._failed else written


@contextmanager
def ignore_broken_pipe() -> Iterator[None]:
    """Inside, standard output and standard error may be closed by their readers.

    What goes to standard error may be lost otherwise, too (a full disk, a terminal that is gone); a standard output
    that cannot be written is an OSError.
    """
    with ExitStack() as stack:
        before = sys.stdout, sys.stderr
        stack.callback(_restore, *before)
        sys.stdout, sys.stderr = _lossy(sys.stdout, stack, told=True), _lossy(sys.stderr, stack, told=False)
        yield


def _restore(out: TextIO, err: TextIO) -> None:
    sys.stdout, sys.stderr = out, err


def _lossy(stream: TextIO | None, stack: ExitStack, *, told: bool) -> TextIO:
    """The same for its file; what has none (`>&-`, a test's) stays as it is."""
    try:
        raw = _LossyWriter(stream.fileno(), told=told)  # type: ignore[union-attr]
    except (AttributeError, OSError, ValueError):
        return stream  # type: ignore[return-value]
    assert stream is not None
    made = io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=bool(stream.line_buffering),
    )
    stack.callback(made.close)
    return made


# --- tail
# The last lines of a file that somebody else is writing.


_BLOCK = 8192


def last_lines(path: Path, count: int) -> list[str]:
    """Up to `count` last lines, each without control characters; none when there is no file yet."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _BLOCK))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [_printable(line) for line in text.splitlines()[-count:]]


def _printable(line: str) -> str:
    """Programs draw progress bars with carriage returns and escapes: they would upset our own screen."""
    return "".join(char for char in line.rsplit("\r", 1)[-1] if char.isprintable() or char == "\t")


# --- words
# What of a task's output `local run` shows and keeps: no secrets.


class OutputRedactor:
    """Secrets that we know are masked. A task that gets others is not quoted: its executor knows them."""

    def __init__(self, spec: ServiceSpec, redactor: SecretRedactor) -> None:
        self._redactor = redactor
        unknown = [item for item in spec.secrets if not item.source.startswith(KNOWN_SOURCES)]
        self._all = not unknown
        self._open = {task.name for task in spec.tasks() if not any(item.is_for(task.job.group) for item in unknown)}

    def knows(self, task: str) -> bool:
        """All that the task may say by mistake."""
        return self._all or task in self._open

    def last(self, task: str, file: Path, count: int) -> list[str]:
        """The last lines of its output; none of one that is not quoted."""
        return [self._redactor.redact(line) for line in last_lines(file, count)] if self.knows(task) else []


def output_redactor(spec: ServiceSpec, document: Mapping[str, Any]) -> OutputRedactor:
    """`document`: its options. Secrets are known from them, and from our own variables."""
    return OutputRedactor(spec, SecretRedactor(known_secrets(resolve(document), os.environ, Policy())))


# --- colours
# Parts on a terminal: tables that fit it, and colours, unless NO_COLOR says not to.


_STYLES = {"good": "green", "busy": "cyan", "wait": "yellow", "bad": "red", "dim": "dim", "strong": "bold"}


def screen() -> Screen:
    """Standard output: in colours on a terminal, else plain text."""
    return ColourScreen() if sys.stdout is not None and sys.stdout.isatty() else plain_screen()


class ColourScreen(Screen):
    """Standard output, which is a terminal."""

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
                shown = rich_renderable(self._fitting(part), self._console.width)
                self._console.print(Group(shown))  # alone a Text would lose how it is to be broken

    def show_live(self, frames: Iterable[Renderable]) -> None:
        with Live(console=self._console, auto_refresh=False) as live:
            for frame in frames:
                width = self._console.width
                live.update(Group(*(rich_renderable(self._fitting(part), width) for part in frame)), refresh=True)

    def _fitting(self, part: Block) -> Block:
        """Itself; of a table that no terminal so narrow has room for, its cells one below the other."""
        width = self._console.width
        narrow = isinstance(part, Table) and width < minimum_width(part)
        return "\n".join(render_lines(part, width)) if narrow else part


def rich_renderable(part: Block, width: int) -> RenderableType:
    """What rich draws for it on so many columns."""
    if isinstance(part, Table):
        return _table(part, width) if part.rows else Text(remove_controls(part.empty))
    if isinstance(part, Line):
        text = Text.assemble(*(_text(word) for word in part.words))
        text.no_wrap, text.overflow = not part.wrap, "fold" if part.wrap else "ellipsis"
        return text
    return Text(part.text if isinstance(part, Raw) else remove_controls(part))


def _table(table: Table, width: int) -> RichTable:
    drawn_table = RichTable(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)  # 2 between columns
    for column, room in zip(table.columns, column_widths(table, width), strict=True):
        drawn_table.add_column(column, overflow="fold", width=room)
    for row in table.rows:
        drawn_table.add_row(*(_Chart(cell) if at in table.charts else _text(cell) for at, cell in enumerate(row)))
    return drawn_table


def _text(cell: Cell) -> Text:
    return Text(cell_text(cell), _STYLES.get(cell.meaning, "") if isinstance(cell, Word) else "")


class _Chart:
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
