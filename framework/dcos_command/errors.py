"""What a person can do something about; the text is the whole message.

CommandError          exit code 1
+-- UsageError        exit code 2
+-- UnreachableError       exit code 3
+-- NothingToDo            exit code 0
+-- RefusedError           what was asked was answered, with an HTTP status that is an error: exit code 1
"""

from __future__ import annotations


class CommandError(Exception):
    """`code` is what the process ends with, `word` what programs know the error by."""

    code = 1
    word = "failed"


class UsageError(CommandError):
    """The command line is understood, and makes no sense."""

    code = 2
    word = "wrong_usage"


class UnreachableError(CommandError):
    """Nothing answers, or there is nobody to ask."""

    code = 3
    word = "unreachable"


class NothingToDo(CommandError):  # noqa: N818 - it names the condition
    """All is as it was asked for."""

    code = 0


class RefusedError(CommandError):
    """`status`: of HTTP. The text is what the scheduler, or the cluster, says; `word`, too, or empty."""

    def __init__(self, message: str, status: int, word: str = "") -> None:
        super().__init__(message)
        self.status, self.word = status, word
