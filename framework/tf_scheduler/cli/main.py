"""`dcos-tensorflow`: the commands, and what an error means for the exit code.

0 success, 1 the job or its input failed, 2 usage, 3 nothing answers.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from dcos_command.errors import CommandError
from mesos_local import MesosLocalError
from tf_scheduler import __version__
from tf_scheduler.errors import NotRunningError, SchedulerError
from tf_scheduler.store.interface import StoreError

from .convert import convert
from .executor import executor
from .install import install, uninstall
from .local import local
from .operate.build import add_to
from .options import options
from .package import package
from .run import run
from .scheduler import scheduler
from .serve import serve
from .state import state

FAILED, UNREACHABLE = 1, 3


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dcos-tensorflow")
def cli() -> None:
    """Distributed TensorFlow on Mesos and DC/OS."""


for command in (run, serve, install, uninstall):
    local.add_command(command)
cli.add_command(local)
cli.add_command(executor)
cli.add_command(options)
cli.add_command(convert)
cli.add_command(package)
cli.add_command(state)
cli.add_command(scheduler)
add_to(cli)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; ends the process."""
    try:
        cli.main(args=arguments, prog_name="dcos-tensorflow")
    except NotRunningError as error:
        _fail(error, UNREACHABLE)
    except CommandError as error:
        _fail(error, error.code)
    except (SchedulerError, MesosLocalError, StoreError) as error:
        _fail(error, FAILED)
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else error, FAILED)


def _fail(error: object, code: int) -> None:
    click.echo(f"{error}", err=True)
    sys.exit(code)
