"""Limits on reads from agents."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from typing import Any

import pytest

from tf_scheduler.api.routes.task_files import MAX_READS_PER_AGENT, AgentFileReader
from tf_scheduler.errors import FileError
from tf_scheduler.interfaces import FileChunk
from tf_scheduler.model.ids import AgentId

PATIENCE = 30.0
PIECE = FileChunk(0, b"said", 4)


class Hanging:
    """An agent that does not answer before `end`."""

    def __init__(self):
        self.end = threading.Event()
        self.asked = []

    def read(self):
        self.asked.append(threading.get_ident())
        assert self.end.wait(PATIENCE)
        raise FileError(502, "it does not answer", silent=True)


async def ended(task: Awaitable[Any]) -> Any:
    return (await asyncio.gather(task, return_exceptions=True))[0]


def test_hanging_agent_does_not_block_others():
    """Readers in its queue fail with the first timeout."""
    hanging = Hanging()

    async def scene():
        reading = AgentFileReader()
        waiting = [asyncio.ensure_future(reading.read(AgentId("a"), hanging.read)) for _ in range(100)]
        try:
            for number in range(3):
                assert PIECE == await asyncio.wait_for(reading.read(AgentId(f"b{number}"), lambda: PIECE), PATIENCE)
        finally:
            hanging.end.set()
        return [await ended(one) for one in waiting], reading

    errors, reading = asyncio.run(scene())

    assert MAX_READS_PER_AGENT == len(hanging.asked)
    assert {502} == {error.http_status for error in errors}
    assert {} == reading.agents


@pytest.mark.parametrize("silent", [True, False])
def test_read_after_timeout_asks_agent_again(silent):
    """A missing file does not affect other readers."""

    def missing():
        raise FileError(404, "no such file", silent=silent)

    async def scene():
        reading = AgentFileReader()
        assert 404 == (await ended(asyncio.ensure_future(reading.read(AgentId("a"), missing)))).http_status
        return await reading.read(AgentId("a"), lambda: PIECE)

    assert PIECE == asyncio.run(scene())


def test_cancelled_reads_count_until_thread_ends():
    hanging = Hanging()

    async def scene():
        reading = AgentFileReader()
        for _ in range(20):
            waiting = asyncio.ensure_future(reading.read(AgentId("a"), hanging.read))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            waiting.cancel()
            assert isinstance(await ended(waiting), asyncio.CancelledError)
        last = asyncio.ensure_future(reading.read(AgentId("a"), lambda: PIECE))
        await asyncio.sleep(0)
        hanging.end.set()
        return await ended(last), await reading.read(AgentId("a"), lambda: PIECE), reading

    last, piece, reading = asyncio.run(scene())
    assert MAX_READS_PER_AGENT == len(hanging.asked)
    assert (502, PIECE) == (last.http_status, piece)
    assert {} == reading.agents
