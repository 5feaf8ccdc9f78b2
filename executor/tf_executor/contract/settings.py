"""Settings with which an executor runs a program: limits, hooks, checks, output."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Sequence

#: `Liveness.kind`.
COMMAND, HTTP, PROGRESS = LIVENESS_KINDS = ("command", "http", "progress")


@dataclass(frozen=True)
class Liveness:
    """Liveness check; the task fails after `failures` failures. Times in seconds."""

    #: `command`: exit code 0 means alive; `http`: status 200 to 399; `progress`: reports arrive (`target` is unused).
    kind: str
    #: Shell command line or URL; `{port}` is replaced by the task's port.
    target: str = ""
    #: Time between two checks.
    interval: float = 10.0
    #: Timeout of a check; for `progress`: maximum time without a report.
    timeout: float = 20.0
    #: Time after the start in which failures are ignored.
    grace: float = 300.0
    #: Consecutive failures that stop the task.
    failures: int = 3


@dataclass(frozen=True)
class RunSettings:
    """Limits, hooks, checks and output of a program. Times in seconds.

    A field with the name of an option has the option's value (`tf_scheduler.options.spec`).
    """

    # -- program

    #: Interpreter that `python` refers to, a path or a name in PATH; empty: the executor's.
    python: str = ""
    #: Whether `--ps_hosts --worker_hosts --job_name --task_index` are appended to the command.
    cluster_flags: bool = False
    #: Time between SIGTERM and SIGKILL, for the program's checkpoint.
    kill_grace: float = 10.0
    #: Shell command lines before the program and after it has exited by itself; empty: none.
    pre_command: str = ""
    post_command: str = ""
    #: Timeout of each of fetching, pre_command and post_command.
    hook_timeout: float = 3600.0

    # -- limits

    #: Whether programs may gain privileges by set-user-id files and file capabilities.
    new_privileges: bool = False
    #: Added to the niceness, -20 to 19.
    nice: int = 0
    #: Name of setrlimit(2) without RLIMIT_, in lower case -> (soft, hard); -1: unlimited.
    ulimits: Mapping[str, Sequence[int]] = field(default_factory=dict)
    #: Whether TensorFlow or PyTorch must see all GPUs of the task before the program starts.
    gpu_check: bool = True

    # -- checks

    liveness: Liveness | None = None
    #: Time without progress and output after which the task fails; 0: never.
    stalled_after: float = 0.0
    #: Time after the start that does not count for `stalled_after`, unless the program reports progress.
    stall_grace: float = 300.0
    #: Time after which a task fails whose processes are stopped or blocked; 0: never.
    frozen_after: float = 900.0

    # -- output

    #: Size at which stdout and stderr are rotated, and number of rotated files to keep.
    output_bytes: int = 32 << 20
    output_backups: int = 3
    #: Whether progress is read from the program's output, and a regular expression for its lines; empty: common forms.
    progress_from_output: bool = False
    progress_pattern: str = ""
