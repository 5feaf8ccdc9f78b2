"""`dcos-tensorflow`: the commands, and what an error means for the exit code.

0 success, 1 the job or its input failed, 2 usage, 3 nothing answers, 130 Ctrl-C.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

import click

from dcos_command.errors import CommandError, UsageError
from dcos_command.failing import document, wants_json
from dcos_command.parts import plain
from tf_scheduler import __version__
from tf_scheduler.errors import NotRunningError, SchedulerError

from .operate.common import asked_by_dcos, before
from .root import Root

FAILED, UNREACHABLE, INTERRUPTED = 1, 3, 130


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dcos-tensorflow")
def cli() -> None:
    """Distributed TensorFlow on Mesos and DC/OS."""


cli.params += [*before(), *asked_by_dcos()]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; ends the process."""
    try:
        code = cli.main(args=arguments, prog_name="dcos-tensorflow", standalone_mode=False)
    except click.ClickException as error:
        if wants_json(sys.argv[1:] if arguments is None else arguments, os.environ):
            click.echo(json.dumps(document(UsageError(error.format_message())), indent=2))
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except NotRunningError as error:
        _fail(error, UNREACHABLE)
    except CommandError as error:
        _fail(error, error.code)
    except _failures() as error:
        _fail(error, FAILED)
    except OSError as error:
        _fail(f"{place}: {error.strerror}" if (place := error.filename or _output()) else error, FAILED)
    else:
        sys.exit(code or 0)


def _output() -> str:
    """Its name, when it is standard output that cannot be written: an end of line is tried.

    Then that is given up, or Python would try once more at its end.
    """
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return "standard output"
    return ""


def _failures() -> tuple[type[Exception], ...]:
    """Of the rooms that a command may have loaded."""
    from mesos_local import MesosLocalError  # only now: most commands that ask a service need neither
    from tf_scheduler.store.interface import StoreError

    return SchedulerError, MesosLocalError, StoreError


def _fail(error: object, code: int) -> None:
    with suppress(BrokenPipeError):  # nobody reads it: the exit code tells
        click.echo(plain(str(error)), err=True)
    sys.exit(code)
