"""Output that nobody reads any more, as of `... | head`: it is dropped, and what is done goes on."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _Unread(io.FileIO):
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
def may_be_unread() -> Iterator[None]:
    """Inside, standard output and standard error may be closed by their readers.

    What goes to standard error may be lost otherwise, too (a full disk, a terminal that is gone); a standard output
    that cannot be written is an OSError.
    """
    with ExitStack() as stack:
        before = sys.stdout, sys.stderr
        stack.callback(_put_back, *before)
        sys.stdout, sys.stderr = _unread(sys.stdout, stack, told=True), _unread(sys.stderr, stack, told=False)
        yield


def _put_back(out: TextIO, err: TextIO) -> None:
    sys.stdout, sys.stderr = out, err


def _unread(stream: TextIO | None, stack: ExitStack, *, told: bool) -> TextIO:
    """The same for its file; what has none (`>&-`, a test's) stays as it is."""
    try:
        raw = _Unread(stream.fileno(), told=told)  # type: ignore[union-attr]
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
