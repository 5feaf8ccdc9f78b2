"""A local run becomes part of the history, and a page when one is asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import click

from mesos_local import AgentSpec
from mesos_local.pinned import VERSION as MESOS
from tf_scheduler import __version__
from tf_scheduler.errors import JobError
from tf_scheduler.history.environment import environment
from tf_scheduler.history.model import Run
from tf_scheduler.history.recording import read
from tf_scheduler.history.shelf import Shelf
from tf_scheduler.options.loader import resolve
from tf_scheduler.options.masking import masked
from tf_scheduler.options.sections.jobs import JOBS
from tf_scheduler.report.page import page as drawn

from .folders import RunFolder, state_home
from .options import without_defaults


def shelf() -> Shelf:
    """Of this user."""
    return Shelf(state_home() / "history.db")


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
    recorded, options = read(folder.recording), resolve(document)
    run = Run(
        id=folder.path.name,
        service=found["service"],
        state=found["state"],
        reason=found["reason"],
        submitted=submitted,
        seconds=found["seconds"],
        folder=str(folder.path),
        options=without_defaults(masked(options), options),
        environment=surroundings,
        agents={agent.hostname: _spoken(agent) for agent in agents},
        launches=recorded.launches,
        curves=recorded.curves,
        unit=recorded.unit,
        told=recorded.told,
    )
    try:
        shelf().keep(run)
    except (JobError, OSError) as error:
        click.echo(f"the run is not in the history: {error}", err=True)
    if page is not None:
        draw(run, page)


def draw(run: Run, page: Path) -> None:
    """Write the page of a run; when it cannot be written, that is told."""
    try:
        page.write_text(drawn(run), encoding="utf-8")
    except OSError as error:
        click.echo(f"the page could not be written to {page}: {error.strerror}", err=True)


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
