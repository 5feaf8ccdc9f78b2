"""`scripts/chaos`: plan faults, inject them into trainings, write the report."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import click

from chaos.faults import ALL, CATALOGUE, DELAY, JOBS, Round, Store, Struck, laps, next_round, unknown
from chaos.page import Circumstances, Ended, Training, page, write
from kit.containers import missing_netem
from mesos_local.host import MesosLocalError
from mesos_local.network import missing_requirements
from tf_scheduler.cli.commands.local import clean_up_on_signals
from tf_scheduler.cli.common.options_file import load_document, load_options
from tf_scheduler.cli.common.output import json_switch
from tf_scheduler.errors import JobError, SchedulerError
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.store.interface import StoreError

from .arena import ENOUGH, UNREACHABLE_TIMEOUT
from .jobs import jobs
from .people import DETACHED
from .training import training

_DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "options.json"
#: As on a cluster: a scheduler on a busy machine may take longer to start than a local run's waits for it.
_SERVICE = {"failover_timeout": 3600}
_RECOVERY = {"unreachable_timeout": UNREACHABLE_TIMEOUT}
#: A frozen program is replaced as soon as it is certain.
_HEALTH = {"frozen_after": 15}
#: Faults are no crash loop: the back-off of the second in a row would only be waited for. Programs are killed often.
_RESTART = {"backoff": 1, "max_backoff": 4, "max_uncounted": 0}
#: Each task has a process beside its program, without its environment and session: the executor has to end it, too.
_SECTION = {"pre_command": f'env -i setsid sh -c "sleep infinity; : {DETACHED}" &'}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("options", type=click.Path(path_type=Path, readable=False), default=_DIGITS)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    metavar="MINUTES",
    help="Strike for MINUTES per seed. Default: each fault once per store and seed.",
)
@click.option(
    "--seed", "seeds", default="0", metavar="SEED,...", show_default=True, help="Seeds of the plan of faults, in turn."
)
@click.option("--faults", default=",".join(ALL), show_default=True, help="Faults to inject, separated by commas.")
@json_switch("Print the result as one JSON object.")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the report as Markdown to this file."
)
def chaos(options: Path, minutes: float | None, seeds: str, faults: str, as_json: bool, out: Path | None) -> None:
    """Train on a separate local cluster and inject faults one by one.

    OPTIONS: options file of a job whose program accepts the arguments of examples/digits, which is the default. The
    training must continue after each fault, succeed, and leave nothing behind. Exit code 0 if all of this is true.
    """
    names = [name.strip() for name in faults.split(",") if name.strip()]
    if problems := unknown(names):
        raise JobError("\n".join(f"--faults: {problem}" for problem in problems))
    skipped = _unavailable(names)
    for name, reason in skipped.items():
        click.echo(f"{name}: skipped: {reason}", err=True)
    numbers = _numbers(seeds)
    document, spec = _document(options)
    circumstances = partial(_circumstances, _command(minutes, numbers, names), time.monotonic(), skipped)
    done: list[Training] = []
    with clean_up_on_signals():
        trained = [name for name in names if name in CATALOGUE and name not in skipped]
        for each in _trainings(document, spec, trained, numbers, minutes) if trained else ():
            done.append(each)
            if out is not None:  # after each training: an interruption must not cost the results of an hour
                write(out, circumstances(), done)
        ended = jobs([name for name in names if name in JOBS])
    _tell(circumstances(), done, ended, out, as_json)
    sys.exit(0 if all([*(each.held for each in done), *(each.held for each in ended)]) else 1)


def _document(path: Path) -> tuple[Mapping[str, Any], ServiceSpec]:
    """Options whose training outlasts the faults. Raises JobError with all problems."""
    spec = load_options(path)
    document = load_document(path)
    if not document.get("service", {}).get("job_url", "").startswith("file:") or not spec.jobs:
        raise JobError(f"{path}: service.job_url is to name a file beside it: the program of examples/digits, or alike")
    given = document["service"]
    service = {**_SERVICE, **given, "command": f'{given["command"]} --until "$CHECKPOINT_DIR/{ENOUGH}"'}
    recovery = {**_RECOVERY, **document.get("recovery", {})}
    restart = {**_RESTART, **document.get("restart", {})}
    health = {**_HEALTH, **document.get("health", {})}
    sections = {job.section: {**_SECTION, **document.get(job.section, {})} for job in spec.jobs}
    own = {"service": service, "recovery": recovery, "restart": restart, "health": health}
    return {**document, **sections, **own}, spec


def _unavailable(names: Sequence[str]) -> dict[str, str]:
    """Faults that this machine cannot inject, with the reason."""
    contained = [name for name in names if name in CATALOGUE and CATALOGUE[name].store is Store.CONTAINERS]
    if missing := ", ".join(missing_requirements()) if contained else "":
        return dict.fromkeys(contained, f"containers need {missing}")
    reason = missing_netem() if DELAY in contained else ""
    return {DELAY: reason} if reason else {}


def _numbers(seeds: str) -> list[int]:
    """Parse --seed. Raises JobError."""
    try:
        return [int(seed) for seed in seeds.split(",")]
    except ValueError as error:
        raise JobError(f"--seed: `{seeds}`: expected whole numbers, separated by commas") from error


def _trainings(
    document: Mapping[str, Any], spec: ServiceSpec, names: Sequence[str], seeds: Sequence[int], minutes: float | None
) -> Iterator[Training]:
    """Strike for the minutes of each seed, or one lap per seed.

    Laps continue over the seeds. A training that fails loses its own remaining strikes, which are planned again. Two
    that fail before a strike end their seed: the next would fail, too.
    """
    struck = Struck()
    done: list[Training] = []
    for lap, seed in enumerate(seeds, 1):
        draw, deadline = Random(seed).randrange, time.monotonic() + 60 * minutes if minutes else None

        def go_on(until: int = lap, deadline: float | None = deadline) -> bool:
            return laps(names, struck) < until if deadline is None else time.monotonic() < deadline

        while go_on():
            planned = next_round(names, struck, draw)
            click.echo(f"training {len(done) + 1}, seed {seed}, store: {planned.store.value}", err=True)
            done.append(_one(document, spec, planned, go_on))
            for finding in done[-1].findings:
                click.echo(f"  did not hold: {finding}", err=True)
            yield done[-1]
            if not any(each.attempted for each in done[-2:]):
                break
            struck.update((each.fault.name, planned.store) for each in planned.strikes[: done[-1].attempted])


def _one(document: Mapping[str, Any], spec: ServiceSpec, planned: Round, go_on: Callable[[], bool]) -> Training:
    try:
        return training(document, spec, planned, go_on)
    except (SchedulerError, MesosLocalError, OSError) as error:
        return Training(planned.store, "did not start", None, 0.0, 0, (), findings=(str(error),))


def _circumstances(command: str, began: float, skipped: Mapping[str, str]) -> Circumstances:
    return Circumstances(
        command=command,
        day=datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        processors=len(os.sched_getaffinity(0)),
        load=_load(time.monotonic() - began),
        skipped=skipped,
    )


def _load(seconds: float) -> float:
    """Load average of the last 1, 5 or 15 minutes, whichever covers the seconds."""
    return os.getloadavg()[0 if seconds < 150 else 1 if seconds < 600 else 2]


def _command(minutes: float | None, seeds: Sequence[int], names: Sequence[str]) -> str:
    words = ["scripts/chaos", *(["--minutes", f"{minutes:g}"] if minutes is not None else [])]
    words += ["--seed", ",".join(map(str, seeds)), *([] if names == list(ALL) else ["--faults", ",".join(names)])]
    return shlex.join([*words, "--out", "docs/evidence/reliability.md"])


def _tell(
    found: Circumstances, done: Sequence[Training], ended: Sequence[Ended], out: Path | None, as_json: bool
) -> None:
    if out is not None:
        write(out, found, done, ended)
    if as_json:
        results = {"trainings": [asdict(each) for each in done], "jobs": [asdict(each) for each in ended]}
        click.echo(json.dumps({**asdict(found), **results}, indent=2))
    elif out is None:
        click.echo(page(found, done, ended))


def main() -> None:
    """Run the command and exit."""
    # Tasks get this umask on a cluster, too, where agents are system services.
    os.umask(os.umask(0o022) | 0o022)
    try:
        chaos.main(prog_name="scripts/chaos")
    except (SchedulerError, MesosLocalError, StoreError) as error:
        sys.exit(str(error))
