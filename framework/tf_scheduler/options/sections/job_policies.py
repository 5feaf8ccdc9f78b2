"""What each job may say of its own tasks' restarts; what it leaves out, `restart` and `recovery` say."""

from __future__ import annotations

from tf_scheduler.model.policy import RestartWhen
from tf_scheduler.options.fields import Number, Text, Whole
from tf_scheduler.options.lists import Wholes

from .base import Section, about

#: A year.
_LONGEST = 31_536_000.0


class JobPolicySection(Section):
    """Part of every job's section."""

    restart_policy = Text(
        load_default=RestartWhen.ON_FAILURE.value,
        choices=[item.value for item in RestartWhen],
        metadata=about(
            "When a task is launched again that has not finished. on_failure: errors count, up to max_failures; "
            "always: nothing counts; never: the job fails with it, whatever the cause; exit_code: exit codes from 1 to "
            "127 end the job, other ends are forgiven."
        ),
    )
    max_failures = Whole(
        load_default=-1,
        least=-1,
        most=100_000,
        metadata=about("As restart.max_failures, for these tasks; -1: that one."),
    )
    uncounted_exit_codes = Wholes(
        load_default=(),
        least=1,
        most=255,
        metadata=about("As restart.uncounted_exit_codes, for these tasks; empty: those."),
    )
    unreachable_timeout = Number(
        load_default=-1.0,
        least=-1.0,
        most=_LONGEST,
        unit="seconds",
        metadata=about("As recovery.unreachable_timeout, for these tasks; -1: that one.", "seconds"),
    )
