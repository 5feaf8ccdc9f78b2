"""The sentences of the last update: what a person reads who asks why a task ended. Pure."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from tf_executor.events import Report, Stage
from tf_executor.reports import Ending

NOT_GONE = "; some of its processes could not be killed and may still be there"
#: Shells return this plus the signal's number when their last command was killed.
_SHELL_SIGNAL_BASE = 128
_SHELL_HINTS = {126: "the shell could not execute the command", 127: "the shell did not find the command"}
_NOUNS = {
    Stage.SECRETS: "the fetch of secrets",
    Stage.DEVICES: "the choice of GPUs",
    Stage.FETCH: "the fetch of files",
    Stage.PRE: "the pre command",
    Stage.GPU_CHECK: "the GPU check",
    Stage.PROGRAM: "the program",
    Stage.POST: "the post command",
}


@dataclass(frozen=True)
class Stopped:
    """Why a task was told to end."""

    #: Who or what, for the message.
    message: str
    #: Whether that is the task's own fault, so that it failed; else it was killed.
    failed: bool = False
    #: Mesos' word for why; empty: none.
    reason: str = ""
    healthy: bool | None = None


def conclusion(
    ending: Ending, stopped: Stopped | None = None, trouble: str = "", memory: str = "", started: bool = True
) -> Report:
    """The last update. `ending` is the program's; `trouble`: what failed beside it; `memory`: what the kernel did."""
    if stopped is not None:
        state = "TASK_FAILED" if stopped.failed else "TASK_KILLED"
        how = describe(ending) if started else "the program had not started"
        return Report(state, f"{stopped.message}; {how}", ending, stopped.reason, stopped.healthy)
    if not started:
        return Report("TASK_FAILED", _joined(trouble, memory), ending)
    if ending.exit_code == 0 and not trouble:
        return Report("TASK_FINISHED", describe(ending), ending)
    if ending.exit_code == 0:
        return Report("TASK_FAILED", _joined(f"the program succeeded, but {trouble}", memory), ending)
    return Report("TASK_FAILED", _joined(describe(ending), memory, trouble), ending)


def stage_failed(stage: Stage, ending: Ending) -> str:
    """A stage beside the program has ended badly."""
    return f"{_NOUNS[stage]} failed: {describe(ending)}"


def stage_too_long(stage: Stage, seconds: float | None) -> str:
    """A stage beside the program was ended by us."""
    return f"{_NOUNS[stage]} took longer than {seconds:g} s"


def stage_runs(stage: Stage) -> str:
    """For an update while something beside the program runs."""
    return f"{_NOUNS[stage]} runs"


def describe(ending: Ending) -> str:
    """How the program ended, and no more than that: anybody can send a SIGKILL, and only the kernel's own counters
    tell whether it was for lack of memory (`memory`).
    """
    if ending.signal is not None:
        return "killed by " + _name(ending.signal)
    if ending.exit_code is None:
        return "the program did not end"
    return f"exit code {ending.exit_code}{_hint(ending.exit_code)}"


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _hint(code: int) -> str:
    if code in _SHELL_HINTS:
        return f" ({_SHELL_HINTS[code]})"
    number = code - _SHELL_SIGNAL_BASE
    if number in [int(known) for known in signal.Signals]:
        return f" (from a shell: its command was killed by {_name(number)})"
    return ""


def _name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
