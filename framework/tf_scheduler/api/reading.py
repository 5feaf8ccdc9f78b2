"""Files of tasks are read off the API's own thread, which waits for no agent; one agent takes no more than its share.

An agent whose file service hangs, as Mesos' does at a named pipe, is waited for by few at a time; whoever asked
meanwhile hears with them that it does not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from tf_scheduler.model.ids import AgentId

from .backend import FileError, Piece

#: Reads at one time, and those of one agent; others wait for their turn.
AT_ONCE, OF_ONE = 16, 2


@dataclass(slots=True)
class _Agent:
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(OF_ONE))
    #: Who reads, or waits for a turn.
    users: int = 0
    #: How often it has not answered.
    silent: int = 0


class Reading:
    """For one event loop."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._agents: dict[AgentId, _Agent] = {}
        #: Its own: what else takes threads is not kept waiting by agents.
        self._threads = ThreadPoolExecutor(AT_ONCE, "files of tasks")

    async def of(self, name: AgentId, read: Callable[[], Piece]) -> Piece:
        """What `read` gives, in a thread. Raise FileError: its own, or what one before had to hear of the agent."""
        with self._agent(name) as agent:
            silent = agent.silent
            await agent.turns.acquire()
            # Who leaves meanwhile does not end the thread: only with that the next has a turn.
            return await asyncio.shield(asyncio.ensure_future(self._read(name, silent, read)))

    async def _read(self, name: AgentId, silent: int, read: Callable[[], Piece]) -> Piece:
        with self._agent(name) as agent:
            try:
                if agent.silent != silent:
                    raise FileError(502, "the agent has just not answered others: ask again later")
                async with self._turns:
                    return await asyncio.get_running_loop().run_in_executor(self._threads, read)
            except FileError as error:
                agent.silent += error.silent
                raise
            finally:
                agent.turns.release()

    @contextmanager
    def _agent(self, name: AgentId) -> Iterator[_Agent]:
        """Forgotten when nobody uses it any more."""
        agent = self._agents.setdefault(name, _Agent())
        agent.users += 1
        try:
            yield agent
        finally:
            agent.users -= 1
            if not agent.users:
                del self._agents[name]
