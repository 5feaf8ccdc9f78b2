"""Why a value cannot be had. The texts name sources, never values."""

from __future__ import annotations

from tf_scheduler.errors import SchedulerError


class SecretError(SchedulerError):
    """The source has no such value, or does not let us see it: asking again does not help."""


class SourceAway(SecretError):  # noqa: N818 - it names the condition
    """The source does not answer for now."""
