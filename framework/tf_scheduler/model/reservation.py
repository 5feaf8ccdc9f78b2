"""A reservation: what one task of an incomplete gang keeps of one agent."""

from __future__ import annotations

from dataclasses import dataclass

from .ids import NO_OPERATION, AgentId, OperationId, TaskName
from .placement import Place


@dataclass(frozen=True, slots=True)
class Reservation:
    """Stored before RESERVE is sent. Mesos gives reservations no ids: a label carries ours."""

    id: str
    task: TaskName
    #: Section of the task.
    group: str
    agent_id: AgentId
    place: Place
    #: Seconds since the epoch; one for all reservations of a gang. From then on it is given back.
    deadline: float
    #: The id of RESERVE; empty when Mesos does not tell what becomes of it.
    operation: OperationId = NO_OPERATION
    #: Mesos has told that it is made.
    made: bool = False
