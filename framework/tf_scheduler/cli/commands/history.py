"""`dcos-tensorflow history`: past runs with their parameters and results; compared, drawn, repeated."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from dcos_command.output import Table
from tf_scheduler.cli.common.options_file import changed_options, read_bytes
from tf_scheduler.cli.common.output import json_option, screen
from tf_scheduler.cli.local_run.report import environment_of, run_database, write_page
from tf_scheduler.errors import JobError, OptionsError
from tf_scheduler.history.compare import (
    ValueDifference,
    compare_environments,
    compare_options,
    compare_results,
    hidden_options,
    run_results,
)
from tf_scheduler.history.model import Run, to_json
from tf_scheduler.history.record import service_run
from tf_scheduler.model.redaction import MASK
from tf_scheduler.options.load import parse, resolve
from tf_scheduler.options.schema.document import mask_options
from tf_scheduler.report.charts import format_duration, format_number, format_time

from .options import write

#: Runs that the list shows by default.
_DEFAULT_COUNT = 20
_MISSING = "–"
_REMOTE_SERVICE = (
    "history has the runs of this machine, not those of a service that --url or --name names. Those are recorded in "
    "its scheduler's sandbox: dcos task download SERVICE recording.jsonl, then history add"
)


@click.group(invoke_without_command=True)
@click.option("-n", "most", type=click.IntRange(1), default=_DEFAULT_COUNT, show_default=True, help="How many runs.")
@json_option
@click.pass_context
def history(context: click.Context, most: int, as_json: bool) -> None:
    """Past runs, newest first: local ones, and those that were added. RUN is an id, the begin of one, or `last`."""
    if any((context.obj or {}).get(name) for name in ("name", "url")):
        raise click.UsageError(_REMOTE_SERVICE)
    if context.invoked_subcommand is not None:
        return
    runs = run_database().runs()[:most]
    if as_json:
        click.echo(json.dumps([_summary(run) for run in runs], indent=2))
        return
    if not runs:
        click.echo("no run is remembered yet: `dcos-tensorflow local run` makes one")
        return
    rows = [
        (
            run.id,
            run.state,
            format_duration(run.seconds),
            format_number(run.last.step),
            format_number(run.last.loss),
            str(run.restarts),
        )
        for run in runs
    ]
    _table(("run", "state", "time", "steps", "loss", "restarts"), rows)


@history.command()
@click.argument("run")
@click.option("--report", "page", type=click.Path(dir_okay=False, path_type=Path), help="Draw it as an HTML page.")
@json_option
def show(run: str, page: Path | None, as_json: bool) -> None:
    """Everything that is known of RUN."""
    found = run_database().find(run)
    if page is not None:
        write_page(found, page)
    if str(page) == "-":  # standard output has the page
        return
    if as_json:
        click.echo(json.dumps(to_json(found), indent=2))
        return
    click.echo("\n".join(_run_lines(found)))


@history.command()
@click.argument("old")
@click.argument("new")
@json_option
def compare(old: str, new: str, as_json: bool) -> None:
    """What is different between the runs OLD and NEW: options, environment, results."""
    before, after = run_database().find(old), run_database().find(new)
    parts = {
        "options": compare_options(*_comparable(before, after)),
        "environment": compare_environments(before.environment, after.environment),
        "results": compare_results(before, after),
    }
    if as_json:
        told = {name: [asdict(item) for item in found] for name, found in parts.items()}
        click.echo(json.dumps({"old": before.id, "new": after.id, **told}, indent=2))
        return
    for name, found in parts.items():
        click.echo(f"{name}:{'' if found else ' the same'}")
        if found:
            _table(("", before.id, after.id), [(item.name, _text(item.old), _text(item.new)) for item in found])


@history.command()
@click.argument("run")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Default: standard output.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@json_option
def reproduce(run: str, output: Path | None, force: bool, as_json: bool) -> None:
    """Write the options file of RUN, and tell what is not now as it was then: versions, files, secrets."""
    found = run_database().find(run)
    text = json.dumps(found.options, indent=2) + "\n"
    missing, changed, defaults = hidden_options(found, MASK), _changed_environment(found), _changed_defaults(found)
    if output is not None:
        write(output, text, force)
    if as_json:
        told = {"options": found.options, "secrets": missing, "changed": [asdict(item) for item in changed]}
        told["defaults"] = [asdict(item) for item in defaults]
        click.echo(json.dumps(told, indent=2))
        return
    for item in changed:
        gone = "is not there any more, and no copy was kept" if item.new == "" else f"is {_text(item.new)}"
        click.echo(f"warning: {item.name} was {_text(item.old)}, {gone}", err=True)
    for item in defaults:
        click.echo(f"warning: {item.name} was {_text(item.old)}, its default is {_text(item.new)} now", err=True)
    for path in missing:
        click.echo(f"warning: {path} was not kept, as it is secret: fill it in", err=True)
    click.echo(text if output is None else f"wrote {output}", nl=output is not None)


@history.command()
@click.argument("recording", type=click.Path(path_type=Path))
@click.option("--name", default="", help="Of the service. Default: that of its options, else tensorflow.")
@click.option(
    "--options", "options_file", type=click.Path(path_type=Path), help="Its options file; secrets are not kept."
)
def add(recording: Path, name: str, options_file: Path | None) -> None:
    """Add the run of an installed service: RECORDING is recording.jsonl of its scheduler's sandbox."""
    document = {} if options_file is None else parse(read_bytes(options_file), str(options_file))
    resolved = resolve(document) if document else {}
    options = changed_options(mask_options(resolved), resolved) if resolved else {}
    found = service_run(recording, name or options.get("service", {}).get("name", "tensorflow"), options)
    run_database().save(found)
    click.echo(f"added {found.id}: {found.state}, {len(found.launches)} launches")


def _comparable(*runs: Run) -> list[Mapping[str, Any]]:
    """All options of each, with today's defaults where those of then were not kept; else only what was given."""
    try:
        return [run.resolved or _all_options(run) for run in runs]
    except OptionsError:  # nobody knows what it was without, or it is not valid any more
        return [run.options for run in runs]


def _changed_defaults(run: Run) -> list[ValueDifference]:
    """Options that were not given, and whose default is not what it was."""
    if not run.resolved:  # kept before that was
        return []
    return [item for item in compare_options(run.resolved, _all_options(run)) if None not in (item.old, item.new)]


def _all_options(run: Run) -> Mapping[str, Any]:
    """With today's defaults, as they would be kept. Raise OptionsError when they are not valid any more."""
    found: Mapping[str, Any] = json.loads(json.dumps(mask_options(resolve(run.options))))
    return found


def _changed_environment(run: Run) -> list[ValueDifference]:
    if not run.environment:  # it was added, and nobody knows
        return []
    try:
        return compare_environments(run.environment, environment_of(resolve(run.options)))
    except OptionsError as error:
        raise JobError(f"the options of {run.id} are not valid any more:\n{error}") from error


def _summary(run: Run) -> dict[str, Any]:
    return {"id": run.id, "service": run.service, "submitted": run.submitted, "reason": run.reason, **run_results(run)}


def _run_lines(run: Run) -> Iterator[str]:
    yield f"{run.id}: {run.service} {run.state}: {run.reason}"
    yield f"submitted {format_time(run.submitted)}; logs and checkpoints: {run.folder}"
    yield from (f"  {name}: {_text(value)}" for name, value in run_results(run).items())
    yield "tasks:"
    for launch in run.launches:
        why = launch.replaced or launch.message
        went = f"{launch.state}: {why}" if why else launch.state
        yield f"  {launch.task}, generation {launch.generation}, on {launch.agent}: {went}"
    yield "environment:"
    yield from (f"  {name}: {value}" for name, value in run.environment.items())
    yield "options:"
    yield from (f"  {line}" for line in json.dumps(run.options, indent=2).splitlines())


def _text(value: Any) -> str:
    return _MISSING if value is None else value if isinstance(value, str) else json.dumps(value)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """As the commands that ask a service draw theirs."""
    screen().show([Table(head, rows)])
