"""`dcos-tensorflow history`: list, show, compare and reproduce past runs."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from dcos_command.client import ServiceOptions
from dcos_command.command import IntRange, echo, examples
from dcos_command.output import Table
from tf_executor.contract.reports import format_step
from tf_executor.contract.text import UNKNOWN, format_duration, format_loss, format_number, format_size, pluralize
from tf_scheduler.cli.common.folders import (
    UserPath,
    folder_size,
    force_option,
    name_and_size,
    named_file_type,
    output_option,
    read_bytes,
)
from tf_scheduler.cli.common.output import echo_json, echo_result, json_option, print_or_write, screen, write_page
from tf_scheduler.cli.common.past_runs import environment_of, files_of, past_runs, run_database
from tf_scheduler.cli.local_run.discovery import fetch_run, resolve_service
from tf_scheduler.errors import JobError, OptionsError
from tf_scheduler.history.compare import (
    ValueDifference,
    compare_options,
    compare_results,
    compare_values,
    hidden_options,
    run_results,
    run_summary,
)
from tf_scheduler.history.database import NO_RUNS, find_run
from tf_scheduler.history.model import Run, is_low_best, to_json
from tf_scheduler.history.record import service_run
from tf_scheduler.model.redaction import MASK
from tf_scheduler.options.job_file import split_job
from tf_scheduler.options.load import parse, resolve
from tf_scheduler.options.schema.document import changed_options, mask_options
from tf_scheduler.report import format_time, render_comparison, render_page

_DEFAULT_COUNT = 20
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_STORE = "folder of past runs"
_REMOTE_SERVICE = (
    "history lists the runs stored on this machine, not the runs of a service selected by --url or --name. To add the "
    "run of a service, run: history add --url URL"
)


def _since(_context: click.Context, _option: click.Parameter, text: str | None) -> float:
    """Return the Unix time of `30m`, `2h`, `7d` ago, or of a date."""
    if text is None:
        return -math.inf
    if matched := re.fullmatch(r"(\d{1,6})([smhdw])", text):
        return time.time() - int(matched[1]) * _SECONDS[matched[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text}: must be a time such as 30m, 2h or 7d, or a date such as 2026-01-31"
        ) from None


@click.group(invoke_without_command=True)
@examples(
    "history",
    "history --metric accuracy --best",
    "history --store /mnt/nfs/runs",
    "history show last --report run.html",
)
@click.option(
    "-n", "count", type=IntRange(1), metavar="N", default=_DEFAULT_COUNT, show_default=True, help="Number of runs."
)
@click.option("--service", default="", metavar="NAME", help="Only runs of this service.")
@click.option(
    "--since", callback=_since, metavar="WHEN", help="Only runs since then: 30m, 2h, 7d, or a date such as 2026-01-31."
)
@click.option("--metric", default="", metavar="NAME", help="Show the best recorded value of a metric.")
@click.option("--best", is_flag=True, help="Best run first, by --metric or else by the loss.")
@click.option(
    "--store",
    type=UserPath(),
    envvar="DCOS_TENSORFLOW_HISTORY",
    metavar="DIR",
    help="Also the runs in this folder of a team (history.store).",
)
@json_option
@click.pass_context
def history(
    context: click.Context,
    count: int,
    service: str,
    since: float,
    metric: str,
    best: bool,
    store: Path | None,
    as_json: bool,
) -> None:
    """List past runs, newest first.

    Lists local runs, runs added with `history add`, and those of --store. RUN is an id, the start of an id, `last`,
    `last-1` (the run before the last), or the name of a service (its newest run).
    """
    context.meta[_STORE] = store
    if context.invoked_subcommand != "add" and any((context.obj or {}).get(name) for name in ("name", "url")):
        raise click.UsageError(_REMOTE_SERVICE)
    if context.invoked_subcommand is not None:
        return
    runs = [run for run in _all_runs() if run.submitted >= since and service in ("", run.service)]
    if metric and not any(metric in run.best for run in runs):
        known = sorted({name for run in runs for name in run.best})
        raise JobError(f"--metric {metric}: no run has it; known metrics: {', '.join(known) or 'none'}")
    if best:
        runs.sort(key=lambda run: _rank(run, metric or "loss"))
    if as_json:
        echo_json([run_summary(run) for run in runs[:count]])
        return
    screen().show([_runs_table(runs[:count], metric)])


def _all_runs() -> list[Run]:
    """Return the runs of this user and of the team, newest first, without duplicates."""
    store = click.get_current_context().meta[_STORE]
    runs, unreadable = past_runs(store)
    if unreadable:
        more = f" and {len(unreadable) - 3} more" if len(unreadable) > 3 else ""
        echo(f"notice: {store}: not records of runs: {', '.join(unreadable[:3])}{more}", err=True)
    return runs


def _rank(run: Run, metric: str) -> float:
    """Return a number that is lower for better runs, and infinite without the metric."""
    value = run.best.get(metric, math.inf if is_low_best(metric) else -math.inf)
    return value if is_low_best(metric) else -value


def _runs_table(runs: Sequence[Run], metric: str) -> Table:
    """Return a table of runs, with their notes if there are any."""
    notes = any(run.note for run in runs)
    titles = ("run", "when", "state", "time", "steps", "loss", *([f"best {metric}"] if metric else []), "restarts")
    rows = [
        (
            run.id,
            datetime.fromtimestamp(run.submitted).strftime("%Y-%m-%d %H:%M"),
            run.outcome,
            format_duration(run.seconds),
            format_step(run.last),
            format_loss(run.last.loss, run.last.nan_since),
            *([format_number(run.best.get(metric))] if metric else []),
            str(run.restarts),
            *([run.note] if notes else []),
        )
        for run in runs
    ]
    return Table((*titles, *(["note"] if notes else [])), rows, NO_RUNS)


@history.command()
@examples("history show last", "history show last --report run.html")
@click.argument("run")
@click.option("--report", "page", type=UserPath(dir_okay=False), help="Write an HTML report to FILE.")
@json_option
def show(run: str, page: Path | None, as_json: bool) -> None:
    """Show the result, tasks, environment and options of RUN."""
    match = find_run(_all_runs(), run)
    if page is not None:
        write_page(render_page(match), page)
    if str(page) == "-":  # standard output has the page
        return
    value = {**to_json(match), "warning": match.warning, "files": files_of(match)}
    echo_result(value, "\n".join(_run_lines(match)), as_json)


@history.command()
@examples("history compare", "history compare digits-20260101 last --report both.html")
@click.argument("old", default="last-1")
@click.argument("new", default="last")
@click.option("--report", "page", type=UserPath(dir_okay=False), help="Draw both curves in FILE.")
@json_option
def compare(old: str, new: str, page: Path | None, as_json: bool) -> None:
    """Compare options and results of two runs, or the last two."""
    runs = _all_runs()
    before, after = find_run(runs, old), find_run(runs, new)
    if page is not None:
        write_page(render_comparison(before, after), page)
    if str(page) == "-":  # standard output has the page
        return
    parts = {
        "options": compare_options(*_comparable(before, after)),
        "environment": compare_values(before.environment, after.environment),
        "results": compare_results(before, after),
    }
    if as_json:
        differences = {name: [asdict(item) for item in items] for name, items in parts.items()}
        echo_json({"old": before.id, "new": after.id, **differences})
        return
    for name, items in parts.items():
        text = _number_text if name == "results" else _text
        rows = [(item.name, text(item.old), text(item.new)) for item in items]
        screen().show([f"{name}:", Table(("", before.id, after.id), rows)] if items else [f"{name}: the same"])


@history.command()
@examples("history reproduce last -o options.json")
@click.argument("run")
@output_option
@force_option
@json_option
def reproduce(run: str, output: Path | None, force: bool, as_json: bool) -> None:
    """Write the options file of RUN and list later changes.

    Warns about versions, files and defaults that have changed since the run. Also lists secrets, which are not stored.
    """
    match = find_run(_all_runs(), run)
    missing, changed, defaults = hidden_options(match, MASK), _changed_environment(match), _changed_defaults(match)
    print_or_write(match.options, output, force, quiet=as_json)
    if as_json:
        changes = {"changed": [asdict(item) for item in changed], "defaults": [asdict(item) for item in defaults]}
        echo_json({"options": match.options, "secrets": missing, **changes})
        return
    for item in changed:
        now = "missing, and no copy was kept" if item.new == "" else _text(item.new)
        now = (
            f"it is now {now}" if item.new is not None or match.folder else "not compared, because another user ran it"
        )
        echo(f"warning: {item.name} was {_text(item.old)}; {now}", err=True)
    for item in defaults:
        echo(f"warning: {item.name} was {_text(item.old)}; its default is now {_text(item.new)}", err=True)
    for path in missing:
        echo(f"warning: {path}: secrets are not stored; add the secret", err=True)


@history.command()
@examples("history add --url http://10.0.0.1:20192", "history add recording.jsonl --options options.json")
@click.argument("recording", required=False, type=named_file_type)
@click.option("--url", default="", metavar="URL", help="Scheduler URL, or DC/OS URL plus /service/NAME.")
@click.option("--token", default="", metavar="TOKEN", help="API token, if the service requires one.")
@click.option("--name", default="", metavar="NAME", help="Name of the service. Default: as in the options.")
@click.option("--options", "options_file", type=named_file_type, metavar="FILE", help="Options file of the service.")
@click.pass_context
def add(
    context: click.Context, recording: Path | None, url: str, token: str, name: str, options_file: Path | None
) -> None:
    """Add the run of an installed service, even before its end.

    Asks the service for its run, unless RECORDING is given: the file recording.jsonl in the sandbox of the service's
    scheduler. Secrets in the options are not stored.
    """
    before = context.obj or {}
    if recording is None:
        asked = ServiceOptions(name or before.get("name") or "", url or before.get("url") or "", token)
        run = fetch_run(resolve_service(asked, os.environ))
    else:
        resolved = {}
        if options_file is not None:
            resolved = resolve(split_job(parse(read_bytes(options_file), str(options_file)))[1])
        options = changed_options(mask_options(resolved), resolved) if resolved else {}
        run = service_run(recording, name or options.get("service", {}).get("name", "tensorflow"), options)
    run_database().save(run)
    echo(f"added {run.id}: {run.state}, {len(run.launches)} launches")


@history.command()
@examples("history prune --keep 10")
@click.option("--keep", default=_DEFAULT_COUNT, type=IntRange(0), show_default=True, help="Runs to leave untouched.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@json_option
def prune(keep: int, dry_run: bool, as_json: bool) -> None:
    """Remove logs, checkpoints and files of older runs.

    The newest runs (--keep) and runs that have not ended are left untouched. The records of all runs stay.
    """
    folders = [(run.id, Path(run.folder)) for run in run_database().runs() if run.folder and not run.process]
    chosen = [(name, path, folder_size(path)) for name, path in folders[keep:] if path.is_dir()]
    for _, path, _ in () if dry_run else chosen:
        shutil.rmtree(path)
    removed = [{"run": name, "bytes": size} for name, _, size in chosen]
    total = format_size(sum(size for _, _, size in chosen))
    lines = [f"{name}: {format_size(size)}" for name, _, size in chosen]
    lines.append(f"{'would remove' if dry_run else 'removed'} the folders of {pluralize(len(chosen), 'run')}, {total}")
    echo_result({"removed": removed, "dry_run": dry_run}, "\n".join(lines), as_json)


def _comparable(*runs: Run) -> list[Mapping[str, Any]]:
    """Return the runs' options with defaults; without defaults if a run's are invalid."""
    try:
        return [run.resolved or _all_options(run) for run in runs]
    except OptionsError:  # no longer valid
        return [run.options for run in runs]


def _changed_defaults(run: Run) -> list[ValueDifference]:
    """Return the options that were not given and whose default has changed."""
    if not run.resolved:  # added from a recording
        return []
    return [item for item in compare_options(run.resolved, _all_options(run)) if None not in (item.old, item.new)]


def _all_options(run: Run) -> Mapping[str, Any]:
    """Return the options with today's defaults. Raises OptionsError if invalid."""
    options: Mapping[str, Any] = json.loads(json.dumps(mask_options(resolve(run.options))))
    return options


def _changed_environment(run: Run) -> list[ValueDifference]:
    if not run.environment:  # an added run
        return []
    try:
        return compare_values(run.environment, environment_of(resolve(run.options), own=bool(run.folder)))
    except OptionsError as error:
        raise JobError(f"the options of {run.id} are no longer valid:\n{error}") from error


def _run_lines(run: Run) -> Iterator[str]:
    yield f"{run.id}: {run.service} {run.state}: {run.reason}"
    if run.note:
        yield f"note: {run.note}"
    files = files_of(run)
    kept = [name for name in ("logs", "checkpoints") if run.folder and any(Path(run.folder, name).glob("*"))]
    place = f"; {' and '.join(kept)}: {run.folder}" if kept else ""
    yield f"submitted {format_time(run.submitted)}{place}"
    yield from (f"  {name}: {_number_text(value)}" for name, value in run_results(run).items())
    yield from (f"  kept {item['task']}: {name_and_size(item)}" for item in files["kept"])
    yield from (f"  not kept, {item['task']}: {name_and_size(item)}: {item['why']}" for item in files["left"])
    yield "tasks:"
    for launch in run.launches:
        why = launch.replaced or launch.message
        state = f"{launch.state}: {why}" if why else launch.state
        yield f"  {launch.task}, generation {launch.generation}, on {launch.agent}: {state}"
    yield "environment:"
    yield from (f"  {name}: {value}" for name, value in run.environment.items())
    yield "options:"
    yield from (f"  {line}" for line in json.dumps(run.options, indent=2).splitlines())


def _number_text(value: Any) -> str:
    return format_number(value) if isinstance(value, (int, float)) else _text(value)


def _text(value: Any) -> str:
    return UNKNOWN if value is None else value if isinstance(value, str) else json.dumps(value)
