"""What `lifecycle` remembers of the one task. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from tf_executor.events import Launch, Stage
from tf_executor.messages import Stopped
from tf_executor.reports import NO_ENDING, Ending


class Phase(Enum):
    """Where the task is."""

    IDLE = "idle"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    SWEEPING = "sweeping"
    KILLING = "killing"
    ENDED = "ended"
    CLOSED = "closed"


@dataclass(frozen=True)
class State:
    """All that the machine remembers. Times are seconds on any clock that never goes back."""

    phase: Phase = Phase.IDLE
    #: When to send `Overdue`; None: never.
    deadline: float | None = None
    launch: Launch = Launch()  # noqa: RUF009 - frozen
    #: What runs now, or ran last; None: nothing did.
    stage: Stage | None = None
    #: What runs after it.
    ahead: tuple[Stage, ...] = ()
    #: When all stages together have taken too long; None: never.
    time_limit: float | None = None
    #: How the program itself ended, once it has.
    ending: Ending = NO_ENDING
    #: What the kernel did meanwhile for lack of memory; empty: nothing.
    memory: str = ""
    #: What failed beside the program, as a sentence; empty: nothing.
    trouble: str = ""
    #: Why the task was told to end; None: it was not.
    stopped: Stopped | None = None
    healthy: bool | None = None
    killing_known: bool = False
    connected: bool = True
    aborted: bool = False

    @property
    def program_started(self) -> bool:
        """Whether the program ran, or runs."""
        return self.stage in (Stage.PROGRAM, Stage.POST)

    def entered(self, phase: Phase, deadline: float | None = None) -> State:
        """The same in another phase, with the deadline of that phase."""
        return replace(self, phase=phase, deadline=deadline)

    def at_next_stage(self) -> State:
        """The first of the stages ahead has become the current one."""
        return replace(self, phase=Phase.STARTING, deadline=None, stage=self.ahead[0], ahead=self.ahead[1:])

    def with_trouble(self, trouble: str) -> State:
        """The current stage has failed; nothing is ahead any more."""
        failed = self.ending if self.stage is Stage.PROGRAM else self._failed_stage()
        return replace(self, trouble=trouble, ahead=(), ending=failed)

    def _failed_stage(self) -> Ending:
        return replace(self.ending, failed_stage=self.stage.value if self.stage else None)
