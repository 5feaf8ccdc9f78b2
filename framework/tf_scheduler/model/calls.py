"""Calls that are for one executor."""

from __future__ import annotations

from dataclasses import dataclass

from .ids import AgentId, ExecutorId


@dataclass(frozen=True, slots=True)
class ShutdownExecutor:
    """Ends an executor whose task is over, in case it did not end by itself."""

    executor_id: ExecutorId
    agent_id: AgentId


@dataclass(frozen=True, slots=True)
class TellExecutor:
    """To read its task's secrets again, now. It may get lost."""

    executor_id: ExecutorId
    agent_id: AgentId
