"""The log of a scheduler that runs in a sandbox of its own: kept with the run, and told where nobody draws."""

from __future__ import annotations

from pathlib import Path

import click

from tf_scheduler.telling.lines import GOES_ON, read

_OURS = ("tf_scheduler", "mesos_client")


class SchedulerLog:
    """Follows `stderr` of one sandbox after the other into `target`, and with `console` to standard error as well."""

    def __init__(self, target: Path, *, console: bool) -> None:
        self._target, self._console = target, console
        self._sandbox: Path | None = None
        self._offset = 0
        self._ours = True
        self.last_line = ""

    def read(self, sandbox: Path | None) -> None:
        """Take over what is new there; first the rest of the sandbox before."""
        if self._sandbox is not None:
            self._follow(self._sandbox / "stderr", last=sandbox != self._sandbox)
        if sandbox is not None and sandbox != self._sandbox:
            self._sandbox, self._offset = sandbox, 0
            self._follow(sandbox / "stderr", last=False)

    def _follow(self, path: Path, *, last: bool) -> None:
        """Whole lines only, unless it is the last time."""
        try:
            with path.open("rb") as file:
                file.seek(self._offset)
                new = file.read()
        except FileNotFoundError:
            return
        whole = new if last else new[: new.rfind(b"\n") + 1]
        if whole:
            self._offset += len(whole)
            with self._target.open("ab") as kept:
                kept.write(whole)
            for line in whole.decode(errors="replace").splitlines():
                self._tell(line)

    def _tell(self, line: str) -> None:
        """A line without a head belongs to the one before."""
        found = read(line)
        if found is not None:
            self._ours = found[0].startswith(_OURS)
        if self._ours:
            message = line.removeprefix(GOES_ON) if found is None else found[1]
            self.last_line = message or self.last_line
            if self._console:
                click.echo(message, err=True)
