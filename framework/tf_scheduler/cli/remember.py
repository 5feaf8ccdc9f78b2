"""A local run becomes part of the history, and a page when one is asked for."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import click

from mesos_local import AgentSpec
from mesos_local.pinned import VERSION as MESOS
from mesos_local.process import ProcessId
from tf_scheduler import __version__
from tf_scheduler.errors import JobError
from tf_scheduler.history.environment import environment
from tf_scheduler.history.model import Run
from tf_scheduler.history.recording import read
from tf_scheduler.history.service_run import RUNNING, service_run
from tf_scheduler.history.shelf import Shelf
from tf_scheduler.options.loader import resolve
from tf_scheduler.options.masking import masked
from tf_scheduler.options.sections.jobs import JOBS

from .folders import RunFolder, state_home
from .options import without_defaults

#: State of a run that nobody follows any more, though it had no result.
LOST = "lost"
_LOST = "it ended without a result: its `local run` is gone, killed or with the machine"


def shelf() -> Shelf:
    """Of this user."""
    return Shelf(state_home() / "history.db", now=_as_it_is)


def begin(document: Mapping[str, Any], folder: RunFolder, agents: Iterable[AgentSpec], submitted: float) -> None:
    """Keep a run that begins, so that it is known whatever becomes of us. What goes wrong is told at its end."""
    with suppress(JobError, OSError):
        shelf().keep(_begun(document, folder, agents, submitted))


def _begun(document: Mapping[str, Any], folder: RunFolder, agents: Iterable[AgentSpec], submitted: float) -> Run:
    options, me = resolve(document), ProcessId.of(os.getpid())
    shown = masked(options)
    return Run(
        id=folder.path.name,
        service=options["service"]["name"],
        state=RUNNING,
        reason="",
        submitted=submitted,
        seconds=0.0,
        folder=str(folder.path),
        options=without_defaults(shown, options),
        resolved=shown,
        agents={agent.hostname: _spoken(agent) for agent in agents},
        process="" if me is None else f"{me.pid}:{me.start_time}",
    )


def _as_it_is(run: Run) -> Run:
    """A run that went on when it was kept: what its scheduler has recorded since, and whether it still goes on."""
    if not run.process:
        return run
    pid, _, start_time = run.process.partition(":")
    goes_on = ProcessId(int(pid), int(start_time)).alive()
    run = run if goes_on else replace(run, state=LOST, reason=_LOST)
    try:
        found = service_run(RunFolder(Path(run.folder)).recording, run.service, run.options)
    except JobError:  # nothing was launched
        return run
    if not goes_on and found.state != RUNNING:
        run = replace(run, state=found.state, reason=found.reason)
    return replace(
        run,
        seconds=round((time.time() if goes_on else found.submitted + found.seconds) - run.submitted, 3),
        launches=found.launches,
        curves=found.curves,
        unit=found.unit,
        told=found.told,
    )


def remember(
    document: Mapping[str, Any],
    found: Mapping[str, Any],
    folder: RunFolder,
    agents: Iterable[AgentSpec],
    submitted: float,
    surroundings: Mapping[str, str],
    page: Path | None,
) -> None:
    """Keep a run; what goes wrong is told, and is no failure of the run.

    `document`: its options; `found`: its report; `submitted`: seconds since the epoch; `surroundings`:
    of `environment_of`; `page`: drawn there.
    """
    recorded = read(folder.recording)
    run = replace(
        _begun(document, folder, agents, submitted),
        state=found["state"],
        reason=found["reason"],
        seconds=found["seconds"],
        environment=surroundings,
        process="",
        launches=recorded.launches,
        curves=recorded.curves,
        unit=recorded.unit,
        told=recorded.told,
    )
    try:
        shelf().keep(run)
    except (JobError, OSError) as error:
        click.echo(f"the run is not in the history: {error}", err=True)
    try:
        if page is not None:
            draw(run, page)
    except JobError as error:
        click.echo(f"{error}", err=True)


def draw(run: Run, page: Path) -> None:
    """Write the page of a run; `-` is standard output. Raise JobError when it cannot be written."""
    from tf_scheduler.report.page import page as drawn

    text = drawn(run)
    if str(page) == "-":
        click.echo(text, nl=False)
        return
    try:
        page.write_text(text, encoding="utf-8")
    except OSError as error:
        raise JobError(f"--report {page}: the page cannot be written there: {error.strerror}") from error


def environment_of(options: Mapping[str, Any]) -> dict[str, str]:
    """What else the result of a local run with these resolved options depends on, now."""
    return environment(__version__, MESOS, _pythons(options), _files(options))


def _pythons(options: Mapping[str, Any]) -> Iterator[str]:
    own = options["service"]["python"] or sys.executable
    yield own
    yield from (options[job]["python"] or own for job in JOBS if options[job]["count"])


def _files(options: Mapping[str, Any]) -> Iterator[Path]:
    url = options["service"]["job_url"]
    if url.startswith("file://"):
        yield Path(unquote(url.removeprefix("file://")))


def _spoken(agent: AgentSpec) -> str:
    attributes = "; ".join(f"{name}: {value}" for name, value in agent.attribute_pairs().items())
    resources = ", ".join(f"{name} {value}" for name, value in agent.resource_pairs().items())
    return "; ".join(part for part in (resources, attributes) if part)
