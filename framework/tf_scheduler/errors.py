"""The error tree. Expected failures are events; these are for bad input and broken infrastructure.

SchedulerError
+-- OptionsError      the options file is not valid: every message at once, exit code 1
+-- NotRunningError   what was asked for is not there or does not answer: exit code 3
+-- JobError          the job or its input failed: exit code 1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class SchedulerError(Exception):
    """Base of all errors that a person can do something about."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with the options."""

    #: Dotted path such as `worker.cpus`; empty: the document itself.
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class OptionsError(SchedulerError):
    """Everything that is wrong with the options, in the order of the document's sections."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class NotRunningError(SchedulerError):
    """Nothing answers where the user pointed us."""


class JobError(SchedulerError):
    """The job failed, or cannot be started as it is."""
