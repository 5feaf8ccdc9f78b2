"""`scripts/chaos`: plan faults, inject them into trainings, write the report."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import click

from chaos.faults import CATALOGUE, Round, lap, rounds, unknown
from chaos.page import Circumstances, Training, page
from mesos_local.host.errors import MesosLocalError
from tf_scheduler.cli.commands.local import clean_up_on_signals
from tf_scheduler.cli.common.options_file import load_document, load_options
from tf_scheduler.cli.common.output import json_switch
from tf_scheduler.errors import JobError, SchedulerError
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.store.interface import StoreError

from .arena import ENOUGH, UNREACHABLE_TIMEOUT
from .training import training

_DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "options.json"
#: As on a cluster: a scheduler on a busy machine may take longer to start than a local run's waits for it.
_SERVICE = {"failover_timeout": 3600}
_RECOVERY = {"unreachable_timeout": UNREACHABLE_TIMEOUT}
#: A frozen program is replaced as soon as it is certain.
_HEALTH = {"frozen_after": 15}
#: Faults are no crash loop: the back-off of the second in a row would only be waited for. Programs are killed often.
_RESTART = {"backoff": 1, "max_uncounted": 0}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("options", type=click.Path(path_type=Path, readable=False), default=_DIGITS)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    metavar="MINUTES",
    help="Repeat trainings for MINUTES. Default: each fault once.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the plan of faults.")
@click.option("--faults", default=",".join(CATALOGUE), show_default=True, help="Faults to inject, separated by commas.")
@json_switch("Print the result as one JSON object.")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="Write the report as Markdown to this file."
)
def chaos(options: Path, minutes: float | None, seed: int, faults: str, as_json: bool, out: Path | None) -> None:
    """Train on a separate local cluster and inject faults one by one.

    OPTIONS: options file of a job whose program accepts the arguments of examples/digits, which is the default. The
    training must continue after each fault, succeed, and leave nothing behind. Exit code 0 if all of this is true.
    """
    names = [name.strip() for name in faults.split(",") if name.strip()]
    if problems := unknown(names):
        raise JobError("\n".join(f"--faults: {problem}" for problem in problems))
    document, spec = _document(options)
    began, deadline = time.monotonic(), None if minutes is None else time.monotonic() + 60 * minutes
    with clean_up_on_signals():
        done = _trainings(document, spec, names, Random(seed), deadline)
    found = Circumstances(
        command=_command(minutes, seed, names),
        day=datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        processors=len(os.sched_getaffinity(0)),
        load=_load(time.monotonic() - began),
    )
    _tell(found, done, out, as_json)
    sys.exit(0 if all(each.held for each in done) else 1)


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
    return {**document, "service": service, "recovery": recovery, "restart": restart, "health": health}, spec


def _trainings(
    document: Mapping[str, Any], spec: ServiceSpec, names: Sequence[str], chance: Random, deadline: float | None
) -> list[Training]:
    """Yield one or more trainings until the deadline (monotonic clock)."""

    def go_on() -> bool:
        return deadline is None or time.monotonic() < deadline

    planned: chain[Round] = chain(lap(names, chance.randrange) if deadline is None else rounds(names, chance.randrange))
    done: list[Training] = []
    for each in planned:
        if done and not go_on():
            break
        click.echo(f"training {len(done) + 1}: the state is in {each.store.value}", err=True)
        done.append(training(document, spec, each, go_on))
        for finding in done[-1].findings:
            click.echo(f"  did not hold: {finding}", err=True)
    return done


def _load(seconds: float) -> float:
    """Load average of the last 1, 5 or 15 minutes, whichever covers the seconds."""
    return os.getloadavg()[0 if seconds < 150 else 1 if seconds < 600 else 2]


def _command(minutes: float | None, seed: int, names: Sequence[str]) -> str:
    words = ["scripts/chaos", *(["--minutes", f"{minutes:g}"] if minutes is not None else [])]
    words += ["--seed", str(seed), *([] if names == list(CATALOGUE) else ["--faults", ",".join(names)])]
    return shlex.join([*words, "--out", "docs/reliability.md"])


def _tell(found: Circumstances, done: Sequence[Training], out: Path | None, as_json: bool) -> None:
    if out is not None:
        out.write_text(page(found, done))
    if as_json:
        click.echo(json.dumps({**asdict(found), "trainings": [asdict(each) for each in done]}, indent=2))
    elif out is None:
        click.echo(page(found, done))


def main() -> None:
    """Run the command and exit."""
    # Tasks get this umask on a cluster, too, where agents are system services.
    os.umask(os.umask(0o022) | 0o022)
    try:
        chaos.main(prog_name="scripts/chaos")
    except (SchedulerError, MesosLocalError, StoreError) as error:
        sys.exit(str(error))
