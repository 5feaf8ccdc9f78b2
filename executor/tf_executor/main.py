"""Start the executor process: arguments, log, signals, driver and loop."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Mapping, NoReturn, Sequence

import tf_executor
from mesos_client.executor import ExecutorDriver

from .process.tree import become_subreaper, close_descriptors_on_exec, hide_environment, reset_signals
from .process.watchdog import start_watchdog
from .runner import TaskRunner

LOG_FILE = "executor.log"

log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the executor for the agent that started this process; return the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments or "MESOS_EXECUTOR_ID" not in os.environ:
        _answer(arguments)
    return execute(os.environ)


def _answer(arguments: Sequence[str]) -> NoReturn:
    """Handle `--help` and `--version`."""
    import argparse  # agents pass no arguments and need not load it

    parser = argparse.ArgumentParser(
        prog="tf_executor", description="Mesos executor of dcos-tensorflow: an agent starts it, without arguments."
    )
    # All modules are loaded by now, so an answer proves that this Python can run the executor.
    version = f"tf_executor {tf_executor.__version__} on Python {sys.version.split()[0]}"
    parser.add_argument("--version", action="version", version=version)
    parser.parse_args(arguments)
    parser.error("missing environment variable MESOS_EXECUTOR_ID; only a Mesos agent can start an executor")


def execute(environ: Mapping[str, str]) -> int:
    """Run the task of the agent that `environ` names.

    Return 0 when the task has ended, 1 when the agent was lost or the executor failed.
    """
    sandbox = environ.get("MESOS_SANDBOX") or str(Path.cwd())
    # To a file, because stdout and stderr belong to the user's program.
    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(filename=str(Path(sandbox) / LOG_FILE), level=logging.INFO, format=form)
    close_descriptors_on_exec()
    hide_environment()
    reset_signals()
    watchdog = start_watchdog(environ)
    become_subreaper()
    # The driver's callbacks need the runner; the runner uses the driver only after `start`.
    runner = TaskRunner(
        lambda status: driver.send_update(status),
        lambda data: driver.send_message(data).ok,
        environ,
        sandbox,
        watchdog,
    )
    driver = ExecutorDriver(on_event=runner.put, on_state=runner.put, environ=environ)
    runner.stop_on_signals()
    driver.start()
    try:
        return runner.run()
    except Exception:
        log.exception("internal error; killing the task")
        runner.kill()
        return 1
    finally:
        driver.stop()
