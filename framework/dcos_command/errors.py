"""What a person can do something about; the text is the whole message.

CommandError          exit code 1
+-- UsageError        exit code 2
+-- UnreachableError       exit code 3
+-- NothingToDo            exit code 0
+-- RefusedError           what was asked was answered, with an HTTP status that is an error: exit code 1
"""

from __future__ import annotations


class CommandError(Exception):
    """`code` is what the process ends with."""

    code = 1


class UsageError(CommandError):
    """The command line is understood, and makes no sense."""

    code = 2


class UnreachableError(CommandError):
    """Nothing answers, or there is nobody to ask."""

    code = 3


class NothingToDo(CommandError):  # noqa: N818 - it names the condition
    """All is as it was asked for."""

    code = 0


class RefusedError(CommandError):
    """`status`: of HTTP. The text is what the scheduler, or the cluster, says."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status
