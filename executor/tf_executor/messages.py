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
        how = describe(ending, ours=True) if started else "the program had not started"
        return Report(state, f"{stopped.message}; {how}", ending, stopped.reason, stopped.healthy)
    if not started:
        return Report("TASK_FAILED", _joined(trouble, memory), ending)
    if ending.exit_code == 0 and not trouble:
        return Report("TASK_FINISHED", describe(ending), ending)
    if ending.exit_code == 0:
        return Report("TASK_FAILED", _joined(f"the program succeeded, but {trouble}", memory), ending)
    return Report("TASK_FAILED", _joined(describe(ending, ours=bool(memory)), memory, trouble), ending)


def stage_failed(stage: Stage, ending: Ending, memory: str = "") -> str:
    """A stage beside the program has ended badly."""
    return f"{_NOUNS[stage]} failed: {describe(ending, ours=bool(memory))}"


def stage_too_long(stage: Stage, seconds: float | None) -> str:
    """A stage beside the program was ended by us."""
    return f"{_NOUNS[stage]} took longer than {seconds:g} s"


def stage_runs(stage: Stage) -> str:
    """For an update while something beside the program runs."""
    return f"{_NOUNS[stage]} runs"


def describe(ending: Ending, ours: bool = False) -> str:
    """How the program ended; `ours`: why it got SIGKILL is known, so that the signal needs no further explanation."""
    if ending.signal is not None:
        return "killed by " + _name(ending.signal, ours)
    if ending.exit_code is None:
        return "the program did not end"
    return f"exit code {ending.exit_code}{_hint(ending.exit_code, ours)}"


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _hint(code: int, ours: bool) -> str:
    if code in _SHELL_HINTS:
        return f" ({_SHELL_HINTS[code]})"
    number = code - _SHELL_SIGNAL_BASE
    if number in [int(known) for known in signal.Signals]:
        return f" (from a shell: its command was killed by {_name(number, ours)})"
    return ""


def _name(number: int, ours: bool) -> str:
    """Number, name and, for SIGKILL from elsewhere, the usual suspect where the kernel has left no trace."""
    try:
        text = f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        text = f"signal {number}"
    return text if ours or number != signal.SIGKILL else text + ", possibly out of memory"
