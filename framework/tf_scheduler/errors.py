"""Errors of the scheduler and its commands; failed tasks are events instead.

SchedulerError                                     `kind`, `exit_code` and `http_status` are attributes of each class
+-- OptionsError                                   invalid options, with every problem
+-- NotRunningError                                no answer from the address given by the user; exit code 3
+-- JobError                                       the job failed or cannot start
+-- FileError                                      a file of a task or operator cannot be read or stored
+-- SecretError, SourceUnavailableError            a secret cannot be read
+-- PackageError                                   invalid package
+-- StoreError (store.interface), LoginError, AccountError (dcos), ApiError, BadRequestError (api), BundleError, ...

Programs that are shipped alone (dcos_command, mesos_local) have their own base class with the same attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


class SchedulerError(Exception):
    """Base class. `kind` is stable, for programs; the text is for people."""

    kind: str = "failed"
    exit_code: int = 1
    http_status: int = 500


@dataclass(frozen=True, slots=True)
class Problem:
    """One error in the options."""

    #: Dotted path such as `worker.cpus`; empty: the document itself.
    path: str
    message: str
    #: Stable, for programs and tests: unknown_option, required, null, wrong_type, or invalid.
    kind: str = field(default="invalid", compare=False)

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


#: Maximum lines of problems in the text of an error.
_MAX_LINES = 10


class OptionsError(SchedulerError):
    """All errors in the options, in the order of the document's sections.

    The text has at most ten lines; `problems` contains all errors.
    """

    kind = "invalid_options"
    http_status = 400

    def __init__(self, problems: Sequence[Problem] | str) -> None:
        """`problems`: the problems, or a text for one problem of the whole document."""
        self.problems = (Problem("", problems),) if isinstance(problems, str) else tuple(problems)
        lines = [*map(str, self.problems)]
        if len(lines) > _MAX_LINES:
            lines[_MAX_LINES - 1 :] = [f"and {len(lines) - _MAX_LINES + 1} more"]
        super().__init__("\n".join(lines))


class NotRunningError(SchedulerError):
    """No answer from the address given by the user."""

    kind = "not_running"
    exit_code = 3
    http_status = 503


class JobError(SchedulerError):
    """The job failed or cannot start."""

    kind = "job_failed"


class FileError(SchedulerError):
    """A file cannot be read or stored. `silent`: the agent does not answer."""

    kind = "file_unavailable"

    def __init__(self, http_status: int, message: str, *, silent: bool = False) -> None:
        super().__init__(message)
        self.http_status, self.silent = http_status, silent


class SecretError(SchedulerError):
    """The source lacks or denies the secret; a retry would fail. Messages omit values."""

    kind = "secret_missing"
    http_status = 424


class SourceUnavailableError(SecretError):
    """The source of a secret is temporarily unavailable."""

    kind = "secret_source_unavailable"
    http_status = 503


class PackageError(SchedulerError):
    """The package's files are unreadable or break a rule of the Universe."""

    kind = "invalid_package"
