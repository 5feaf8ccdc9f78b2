"""A progress bar for the one download; on anything but a terminal one line says what is going on."""

from __future__ import annotations

from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn


class DownloadBar:
    """What pypi-simple calls a progress tracker. Entered by us and again by pypi-simple: only our exit ends it."""

    def __init__(self, progress: Progress, what: str, size: int | None) -> None:
        self._progress, self._what, self._size = progress, what, size
        self._task = progress.add_task(f"downloading {what}", total=size)
        self._depth = 0

    def expect(self, size: int | None) -> DownloadBar:
        """So many bytes will come; None: as many as was said before. Returns itself."""
        size = size or self._size
        self._progress.update(self._task, total=size)
        if self._progress.disable:
            amount = f" ({size / 1e6:.0f} MB)" if size else ""
            print(f"downloading {self._what}{amount}", file=self._progress.console.file, flush=True)
        return self

    def __enter__(self) -> DownloadBar:
        if self._depth == 0:
            self._progress.start()
        self._depth += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._progress.stop()

    def update(self, increment: int) -> None:
        """`increment`: bytes since the last call."""
        self._progress.update(self._task, advance=increment)


def download_bar(what: str, size: int | None, stream: TextIO) -> DownloadBar:
    """A bar on `stream`; `size` in bytes, None if unknown."""
    console = Console(file=stream)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    progress = Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal)
    return DownloadBar(progress, what, size)
