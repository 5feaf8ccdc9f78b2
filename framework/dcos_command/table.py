"""Every command there is."""

from __future__ import annotations

from typing import Mapping

from . import debug, plans, pods, progress, settings, streams, tasks, uninstalling, update
from .command import Command

COMMANDS: tuple[Command, ...] = (
    *plans.COMMANDS,
    *pods.COMMANDS,
    *tasks.COMMANDS,
    *streams.COMMANDS,
    *progress.COMMANDS,
    *settings.COMMANDS,
    *update.COMMANDS,
    *uninstalling.COMMANDS,
    *debug.COMMANDS,
)
#: Words that commands begin with -> what they are about.
GROUPS: Mapping[str, str] = {
    "plan": "Ordered work: what is done, what is left; go on, wait, or begin again.",
    "pod": "The tasks as the DC/OS SDK speaks of them: launch again, replace, pause.",
    "config": "What the service is made of.",
    "state": "What the scheduler has stored.",
    "secrets": "What programs get of passwords and keys.",
    "update": "Give the service other options.",
    "debug": "What the scheduler thought of offers, and what is reserved.",
    "debug config": "As `config`.",
    "debug pod": "As `pod`.",
    "debug state": "As `state`.",
}
#: Other words for the first of them: those of the DC/OS SDK.
GROUP_ALIASES: Mapping[str, str] = {"plans": "plan", "pods": "pod"}
