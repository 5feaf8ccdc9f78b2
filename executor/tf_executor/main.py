"""The executor's process: arguments, log, signals, driver, loop."""

from __future__ import annotations

import base64
import logging
import os
import sys
import uuid
from pathlib import Path
from typing import Mapping, NoReturn, Sequence

import tf_executor
from mesos_client import Aborted, Disconnected
from mesos_client.executor import ExecutorDriver
from tf_executor import events
from tf_executor.guardian import start_guardian
from tf_executor.processes import become_subreaper, hide_environment, start_with_usual_signals
from tf_executor.runner import AgentEvent, AgentGone, Runner

LOG_FILE = "executor.log"

log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as the executor of the agent that started us; return the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    if given or "MESOS_EXECUTOR_ID" not in os.environ:
        _answer(given)
    return execute(os.environ)


def _answer(arguments: Sequence[str]) -> NoReturn:
    """To people, not to an agent."""
    import argparse  # agents give no arguments, and shall not pay for it

    parser = argparse.ArgumentParser(
        prog="tf_executor", description="Mesos executor of dcos-tensorflow: an agent starts it, without arguments."
    )
    # Everything is loaded by then: an answer means that this Python can run the executor.
    version = f"tf_executor {tf_executor.__version__} on Python {sys.version.split()[0]}"
    parser.add_argument("--version", action="version", version=version)
    parser.parse_args(arguments)
    parser.error("MESOS_EXECUTOR_ID is not set: only a Mesos agent can start an executor")


def execute(environ: Mapping[str, str]) -> int:
    """Serve the agent that `environ` names until the task has ended; 1: the agent was lost or we failed."""
    sandbox = environ.get("MESOS_SANDBOX") or str(Path.cwd())
    _log_to(Path(sandbox) / LOG_FILE)
    start_with_usual_signals()
    guard = start_guardian(environ)
    become_subreaper()
    hide_environment()
    # The runner is made first, for the driver's callbacks; it sends only after `start`.
    runner = Runner(
        lambda status: _wire_form(driver.send_update(status)),
        lambda data: driver.send_message(data).ok,
        environ,
        sandbox,
        guard,
    )
    driver = ExecutorDriver(
        on_event=lambda event: runner.put(AgentEvent(event)),
        on_state=lambda state: runner.put(_connection(state)),
        environ=environ,
    )
    runner.stop_on_signals()
    driver.start()
    try:
        return runner.run()
    except Exception:
        log.exception("the executor has a defect; the task ends with it")
        runner.kill()
        return 1
    finally:
        driver.stop()


def _wire_form(identity: uuid.UUID) -> str:
    """As an ACKNOWLEDGED event names it."""
    return base64.b64encode(identity.bytes).decode()


def _connection(state: Disconnected | Aborted) -> events.Disconnected | AgentGone:
    return AgentGone(state.reason) if isinstance(state, Aborted) else events.Disconnected()


def _log_to(path: Path) -> None:
    """stdout and stderr belong to the user's program."""
    logging.basicConfig(
        filename=str(path), level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
