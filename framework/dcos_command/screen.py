"""Where a command shows what it has to say: a terminal, or a file or pipe that gets everything at full length."""

from __future__ import annotations

import shutil
from typing import ContextManager, Iterable, Iterator, TextIO

from . import reader, render
from .errors import UsageError
from .parts import Parts, Raw


class Screen:
    """Plain text. `dcos-tensorflow` has one with colours, for terminals."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        #: Whether things can be drawn again.
        self.live = out.isatty()

    def show(self, parts: Parts) -> None:
        """At once, also through a pipe."""
        for part in parts:
            if isinstance(part, Raw):
                self._out.write(part.on(self._out))
            else:
                self._out.writelines(f"{line}\n" for line in render.lines(part, self._width()))
            self._out.flush()

    def attended(self) -> ContextManager[None]:
        """Inside, BrokenPipeError is raised when nobody reads any more, even if nothing is shown."""
        return reader.attended(self._out)

    def play(self, frames: Iterable[Parts]) -> None:
        """Each in the place of the one before; the last one stays."""
        drawn = 0
        for frame in frames:
            lines = list(self._lines(frame))
            self._out.write(f"\x1b[{drawn}A\x1b[J" if drawn else "")
            self._out.writelines(f"{line}\n" for line in lines)
            self._out.flush()
            drawn = len(lines)

    def _lines(self, parts: Parts) -> Iterator[str]:
        for part in parts:
            yield from render.lines(part, self._width())

    def _width(self) -> int | None:
        """Asked each time: windows change."""
        return shutil.get_terminal_size().columns if self.live else None


def confirm(question: str, answers: TextIO, out: TextIO) -> None:
    """Return when the person says yes. Raise UsageError when not, or when nobody is there to be asked."""
    if answers.isatty() and out.isatty():
        out.write(f"{question} [y/N] ")
        out.flush()
        if answers.readline().strip().lower() in ("y", "yes"):
            return
        raise UsageError("nothing was done")
    raise UsageError("nothing was done; to do it without being asked: --yes")
