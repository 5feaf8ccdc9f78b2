"""A program that fails at once, again and again, at one address: the port may be somebody else's.

Mesos offers ports, it does not guard them: a process that is no task of Mesos may listen there. Each launch at the old
address then fails at bind, at once, for ever. No exit code says so; what can be seen is that the program ended with an
error of its own soon after its launch, before it was ready, twice in a row at the same address. Whatever the reason:
the third launch gets other ports.
"""

from __future__ import annotations

import signal
from dataclasses import replace

from tf_scheduler.model.failure import Cause
from tf_scheduler.model.recovery import Recovery
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord, TaskStatus

#: Seconds after its launch in which an end is at once: importing TensorFlow takes some of them.
SOON = 60.0
#: Addresses that are remembered for each task, the last ones.
KEPT = 16
#: TensorFlow's way to end where it cannot go on; the same from a shell.
_ABORTED = (signal.SIGABRT, 128 + signal.SIGABRT)


def noted(state: SchedulerState, found: Recovery, status: TaskStatus, ready: bool) -> Recovery:
    """The recovery of a launch that has just ended, with what is held against its address.

    `ready`: whether its server had answered, or it had told progress.
    """
    record, known = state.tasks[found.task], state.recoveries.get(found.task)
    shuns = known.shuns if known else ()
    if state.spec.network is not None or not _at_once(record, found, status, ready):
        return replace(found, shuns=shuns)
    if known is None or known.stumbled != record.address:
        return replace(found, shuns=shuns, stumbled=record.address)
    why = f"{found.why}; at once, twice in a row at {record.address}, so not there again: somebody may have its port"
    return replace(found, why=why, shuns=(*shuns, record.address)[-KEPT:])


def _at_once(record: TaskRecord, found: Recovery, status: TaskStatus, ready: bool) -> bool:
    if ready or status.healthy is False or found.since - record.launched_at >= SOON:
        return False
    if status.signal in _ABORTED or status.exit_code in _ABORTED:
        return True
    return status.exit_code is not None and found.cause in (Cause.USER_ERROR, Cause.COLLATERAL)
