"""What a task runs besides its command line, what is done around it, and how it is watched. Times in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


@dataclass(frozen=True, slots=True)
class Program:
    """A module with `main(server, log_dir, context)`, as the original package runs it where there is no command."""

    name: str
    #: Folder that holds the module, relative to the working directory.
    path: str = ""
    #: JSON object, as text.
    context: str = "{}"


@dataclass(frozen=True, slots=True)
class Hooks:
    """Shell command lines around the program; empty: none."""

    pre: str = ""
    post: str = ""
    #: For each of them, and for fetching.
    timeout: float = 3600.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What the operating system allows the program."""

    #: Added to the niceness.
    nice: int = 0
    #: Name as in setrlimit(2), lower case, without RLIMIT_ -> (soft, hard); -1: unlimited.
    ulimits: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Output:
    """What is kept of each of standard output and standard error."""

    #: Bytes of one file.
    size: int = 32 << 20
    #: Older files beside it.
    backups: int = 3


class LivenessKind(str, Enum):
    """How to see that a program that runs still works."""

    COMMAND = "command"
    HTTP = "http"
    PROGRESS = "progress"


@dataclass(frozen=True, slots=True)
class Liveness:
    """A program that fails it so often in a row counts as failed."""

    kind: LivenessKind
    #: Command line, or URL in which `{port}` is the task's port; unused for progress.
    target: str = ""
    interval: float = 10.0
    #: For one look; for progress: how long nothing may be reported.
    timeout: float = 20.0
    #: After the start, in which failures do not count.
    grace: float = 300.0
    failures: int = 3
