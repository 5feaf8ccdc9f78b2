"""`dcos-tensorflow`: the root command (exit codes: see dcos_command.main)."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

import click

from dcos_command.command import CliProgram, LazyGroup, Listed, declared_in, late, print_error
from dcos_command.main import CONTEXT_SETTINGS, SERVICE_COMMANDS, root_help, root_options, run_command, set_program
from tf_scheduler import __version__

#: Installed beside `dcos-tensorflow`; does the same.
SHORT_NAME = "dtf"
_COMMANDS = f"{__package__}.commands"
_OWN_COMMANDS: Mapping[str, Listed] = {
    **declared_in(f"{_COMMANDS}.attempt", **{"try": "Run PROGRAM on this machine, without an options file."}),
    **declared_in(f"{_COMMANDS}.install", submit="Submit a job, and follow it to its end."),
    **declared_in(f"{_COMMANDS}.history", history="List past runs, newest first."),
    **declared_in(f"{_COMMANDS}.options", options="Check, complete, compare and explain options files."),
    **declared_in(f"{_COMMANDS}.convert", convert="Convert FILE to an options file."),
    **declared_in(f"{_COMMANDS}.runtime", runtime="Manage Python environments with one TensorFlow each."),
    **declared_in(f"{_COMMANDS}.local", local="Run jobs and services on a real Mesos on this machine."),
    **declared_in(
        f"{_COMMANDS}.package",
        package="Validate, render and build the DC/OS package.",
        executor="Build the executor, which runs on the agents.",
    ),
    **declared_in(f"{_COMMANDS}.scheduler", scheduler="Run the scheduler, as Marathon does."),
    **declared_in(f"{_COMMANDS}.state", state="Show, export and import the state of a scheduler."),
    **declared_in(f"{_COMMANDS}.doctor", doctor="Check the cluster, the service and this machine."),
}
_DISCOVERY, _OUTPUT = f"{__package__}.local_run.discovery", f"{__package__}.common.output"


@click.group(cls=LazyGroup, later={**SERVICE_COMMANDS, **_OWN_COMMANDS}, context_settings=dict(CONTEXT_SETTINGS))
@click.version_option(__version__, prog_name="dcos-tensorflow")
def cli() -> None:
    """Distributed TensorFlow on Mesos and DC/OS."""


cli.help = root_help(
    str(cli.help), "dcos-tensorflow", "try train.py --workers 2", "submit options.json", "status", "logs worker-0 -f"
)
cli.params += root_options()
set_program(
    cli,
    CliProgram(
        late(_DISCOVERY, "resolve_service"),
        late(_DISCOVERY, "all_services"),
        late(_OUTPUT, "screen"),
        os.environ,
        ended=late(_DISCOVERY, "last_result"),
        serve_runs=late(f"{__package__}.local_run.runs_page", "serve_past_runs"),
    ),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit."""
    try:
        called = Path(sys.argv[0]).name
        words = sys.argv[1:] if arguments is None else arguments
        code = run_command(cli, words, called if called == SHORT_NAME else "")
    except OSError as error:
        code, place = 1, error.filename or _failed_output()
        print_error(f"{place}: {error.strerror}" if place else str(error))
    except Exception as error:
        if (code := getattr(error, "exit_code", 0)) == 0:
            raise
        print_error(str(error))
    _give_up_output(sys.stdout, sys.stderr)
    sys.exit(code)


def _give_up_output(*streams: TextIO | None) -> None:
    """Discard output that cannot be written (full disk); Python would exit with 120."""
    for stream in filter(None, streams):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _failed_output() -> str:
    """Return `standard output` if it cannot be written, else an empty text.

    Standard output is then replaced, because Python would try to write the rest again when it exits.
    """
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        _give_up_output(sys.stdout)
        return "standard output"
    return ""
