"""A launch that is to be replaced, and what is remembered of a task's failures."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from .failure import Cause
from .ids import AgentId, TaskId, TaskName


@dataclass(frozen=True, slots=True)
class Recovery:
    """In force as long as `launch` is the task's launch; after that it is the history that the next one counts from."""

    task: TaskName
    #: The launch to be replaced: lost, or to start again with a lost one.
    launch: TaskId
    cause: Cause
    #: A sentence for people.
    why: str
    #: When it was decided. All times in seconds since the epoch.
    since: float
    #: Not to be launched before: the back-off.
    ready_at: float
    #: Until then only at its old address, so that nobody else has to start again.
    home_until: float
    #: Times of the failures that count against `restart.max_failures`, within its window.
    failures: tuple[float, ...] = ()
    #: Ends in a row, whatever their cause, each soon after its launch: what the back-off grows with.
    streak: int = 0
    #: Launches in a row that have not joined the others in time.
    unjoined: int = 0
    #: Whether it is to go elsewhere: not to its old address, nor to the agent, as long as another one will do.
    leaves: bool = False
    #: The address at which this launch has failed at once, if it has: after one more such failure there, the task
    #: goes elsewhere (core/recovery/stumbling.py).
    stumbled: str = ""
    #: Addresses at which it has failed so twice in a row: it gets other ports, if there are any.
    shuns: tuple[str, ...] = ()
    #: Whether a launch of it has joined the others: its program is known to open a server.
    served: bool = False


@dataclass(frozen=True, slots=True)
class Suspect:
    """What is held against an agent. All times in seconds since the epoch."""

    agent_id: AgentId
    hostname: str
    #: When launches were lost there, or could not start; those of one moment count once.
    failures: tuple[float, ...] = ()
    #: Not used before, if another agent will do.
    avoided_until: float = 0.0


class PodVerb(str, Enum):
    """What an operator may want of one task (dcos-commons, PodResource; a pod has one task here)."""

    #: Launch it again, at its old place if that can be had.
    RESTART = "restart"
    #: Launch it again at another place.
    REPLACE = "replace"
    #: End its program, and do not launch it before it is resumed.
    PAUSE = "pause"
    RESUME = "resume"
