"""Errors of the local DC/OS."""

from __future__ import annotations

from collections.abc import Sequence

from tf_scheduler.errors import Problem, SchedulerError


class LocalError(SchedulerError):
    """The local DC/OS cannot start or continue."""


class MarathonError(LocalError):
    """Marathon's refusal: HTTP status and message, with the problems of the app."""

    def __init__(self, status: int, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__("\n".join([message, *map(str, problems)]))
        self.http_status, self.message, self.problems = status, message, tuple(problems)

    def document(self) -> dict[str, object]:
        """The body of Marathon's answer."""
        details = [{"path": problem.path, "errors": [problem.message]} for problem in self.problems]
        return {"message": self.message, **({"details": details} if details else {})}
