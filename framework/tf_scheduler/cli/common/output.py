"""Command output: `--json`, closed pipes, redacted task output, coloured tables."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from dcos_command.command import echo
from dcos_command.main import plain_screen
from dcos_command.output import Screen, remove_controls
from tf_scheduler.errors import JobError, Problem

from .folders import open_regular

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


_Command = TypeVar("_Command", bound=Callable[..., Any])


def json_switch(text: str) -> Callable[[_Command], _Command]:
    """Return the option `--json` with this help, as the parameter `as_json`."""
    return click.option("--json", "as_json", is_flag=True, callback=_inherit_json, help=text)


def _inherit_json(context: click.Context, _parameter: click.Parameter, value: bool) -> bool:
    """Apply `--json` of a group to its commands."""
    before = context.ensure_object(dict)
    before["as_json"] = value or bool(before.get("as_json"))
    return bool(before["as_json"])


json_option = json_switch("Print JSON.")


def echo_json(document: Any) -> None:
    """Print a JSON document for people and programs."""
    echo(json.dumps(document, indent=2))


def echo_result(document: Any, text: str, as_json: bool) -> None:
    """Print a result as JSON, or as text for people."""
    echo(json.dumps(document, indent=2) if as_json else text)


# --- closed pipes


class _LossyWriter(io.FileIO):
    """Discards output after a failed write. `strict`: raise its error, except EPIPE."""

    def __init__(self, descriptor: int, *, strict: bool) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._strict, self._failed = strict, False

    def write(self, data: ReadableBuffer, /) -> int | None:  # type: ignore[override]  # None: would block (io.RawIOBase)
        written = None
        try:
            written = None if self._failed else super().write(data)
        except OSError as error:
            self._failed = True
            if self._strict and not isinstance(error, BrokenPipeError):
                raise
        return memoryview(data).nbytes if self._failed else written


@contextmanager
def ignore_broken_pipe() -> Iterator[None]:
    """Discard output to a closed pipe, so that a command continues after `| head`.

    All failures of standard error are ignored. Other failures of standard output raise OSError.
    """
    with ExitStack() as stack:
        out, err = _lossy(sys.stdout, stack, strict=True), _lossy(sys.stderr, stack, strict=False)
        stack.enter_context(redirect_stdout(out))
        stack.enter_context(redirect_stderr(err))
        yield


def _lossy(stream: TextIO | None, stack: ExitStack, *, strict: bool) -> TextIO:
    """Return a lossy stream to the same file; a stream without a file is unchanged."""
    try:
        raw = _LossyWriter(stream.fileno(), strict=strict)  # type: ignore[union-attr]
    except (AttributeError, OSError, ValueError):
        return stream  # type: ignore[return-value]
    assert stream is not None
    lossy = io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=bool(stream.line_buffering),
    )
    stack.callback(lossy.close)
    return lossy


def say(text: str) -> None:
    """Print a line about a run on standard error; for a pipe, with the time of day."""
    is_terminal = sys.stderr.isatty()
    echo(folded(text) if is_terminal else f"{time.strftime('%H:%M:%S')} {text}", err=True)


#: Indentation of the further lines of a sentence: below its first line, on a wide terminal beside the label.
_INDENT, _WIDE_INDENT, _WIDE = 4, 12, 60


#: Commands in a sentence.
_COMMANDS = re.compile(r"`[^`]+`|(?:dcos-tensorflow|dcos tensorflow|pip install) [^`;,)]+")


def folded(line: str) -> str:
    """Fold a line at spaces, for this terminal; see `fold_lines`."""
    width = max(shutil.get_terminal_size().columns, 2 * _WIDE_INDENT)
    return "\n".join(fold_lines(line, width, " " * (_WIDE_INDENT if width >= _WIDE else _INDENT)))


def fold_lines(line: str, width: int, indent: str = "") -> list[str]:
    """Fold a line at spaces. Commands, addresses and paths stay whole, to be copied."""
    whole = _COMMANDS.sub(lambda match: match[0].replace(" ", "\0"), line)
    lines = textwrap.wrap(whole, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return [part.replace("\0", " ") for part in lines]


# --- task output


_BLOCK = 8192  # bytes at the end of a file
_PART = 1 << 20  # bytes read at once


#: Starts of lines that Mesos writes to stderr when it starts a container.
LAUNCHER_LINES = ("Preparing rootfs at ", "Marked '/' as ", "Changing root to ", "Overwriting environment variable ")


def last_lines(path: Path, count: int) -> list[str]:
    """Return the last `count` lines without control characters; empty without a file."""
    try:
        with open_regular(path) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _BLOCK))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    # A program redraws a line after `\r`.
    return [remove_controls(line.rsplit("\r", 1)[-1]) for line in text.splitlines()[-count:]]


#: Messages of TensorFlow's C++ code that are no warnings, and bars that Keras prints again for each batch.
_CHATTER = re.compile(r"\s*$|I\d{4} |[-\d]+ [\d:.]+: I |WARNING: All log messages before absl")
_BAR_LINE = re.compile(r"\s*\d+/\d+ ")


def notable_lines(lines: Iterable[str]) -> list[str]:
    """Omit blank lines, information of TensorFlow, and progress bars before the last."""
    notable: list[str] = []
    for line in lines:
        if _CHATTER.match(line):
            continue
        if notable and _BAR_LINE.match(line) and _BAR_LINE.match(notable[-1]):
            notable.pop()
        notable.append(line)
    return notable


class OutputTail:
    """New whole lines of a file, which the executor or logrotate may truncate."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset, self._partial = path, 0, b""

    def lines(self, *, last: bool = False) -> Iterator[str]:
        """Yield new lines. `last`: read all of the file, with an incomplete last line."""
        while part := self._read():
            whole, newline, self._partial = (self._partial + part).rpartition(b"\n")
            yield from whole.decode(errors="replace").split("\n") if newline else ()
            if not last:
                return
        if last and self._partial:
            yield self._partial.decode(errors="replace")
            self._partial = b""

    def _read(self) -> bytes:
        try:
            with open_regular(self._path) as file:
                if file.seek(0, os.SEEK_END) < self._offset:
                    self._offset, self._partial = 0, b""
                file.seek(self._offset)
                part = file.read(_PART)
        except OSError:  # not created yet, or not a file
            return b""
        self._offset += len(part)
        return part


# --- screen


def screen() -> Screen:
    """Return standard output: coloured on a terminal without NO_COLOR, else plain."""
    if sys.stdout is None or not sys.stdout.isatty():
        return plain_screen()
    from .colour import ColourScreen  # rich, which takes as long to load as the rest

    return ColourScreen()


def print_notices(notices: Iterable[Problem]) -> None:
    """Print notices on standard error."""
    for notice in notices:
        echo(f"notice: {notice}", err=True)


# --- files


def print_or_write(document: Any, output: Path | None, force: bool, *, quiet: bool) -> None:
    """Print JSON or write it to a new file; `force`: to any file. Raises JobError."""
    text = json.dumps(document, indent=2) + "\n"
    if output is not None:
        try:
            with output.open("w" if force else "x") as stream:
                stream.write(text)
        except FileExistsError as error:
            raise JobError(f"{output}: already exists; replace it with --force") from error
    if not quiet:
        echo(text if output is None else f"wrote {output}", nl=output is not None)


def write_page(text: str, page: Path) -> None:
    """Write an HTML page; `-` is standard output. Raises JobError."""
    if str(page) == "-":
        echo(text, nl=False)
        return
    try:
        page.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _page_error(page, error) from error


def check_page(page: Path | None) -> None:
    """Raise JobError if the page cannot be written, before a long training starts."""
    if page is None:
        return
    if str(page) == "-":
        raise JobError("--report cannot be `-`, because standard output contains the result; name a file")
    new = not page.exists()
    try:
        page.open("ab").close()
        if new:
            page.unlink()
    except OSError as error:
        raise _page_error(page, error) from error


def _page_error(page: Path, error: OSError) -> JobError:
    return JobError(f"--report {page}: cannot be written: {error.strerror}")
