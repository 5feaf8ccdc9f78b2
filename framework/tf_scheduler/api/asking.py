"""From a request to the scheduler's loop and back: an event goes into its inbox, its answer comes with the decision."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tf_scheduler.model.effects import Decision
from tf_scheduler.model.events import Event
from tf_scheduler.model.plan import Answer

if TYPE_CHECKING:
    from concurrent.futures import Future

#: Seconds that a client waits for the loop.
PATIENCE = 10.0

Put = Callable[[Callable[[], Event | None]], None]


class NoAnswer(Exception):  # noqa: N818 - it names the condition
    """The loop did not answer in time; what was asked for may still be done."""


class Desk:
    """Takes commands from the API's thread. An observer of the loop: it hears every decision, and looks for answers."""

    def __init__(self) -> None:
        self._waiting: dict[int, Future[Answer | None]] = {}

    def __call__(self, event: Event, decision: Decision) -> None:
        """In the loop's thread; costs one look into a dict, which is empty nearly always."""
        if not self._waiting:
            return
        future = self._waiting.pop(id(event), None)
        if future is not None and not future.done():
            future.set_result(decision.answer)

    async def ask(self, put: Put, event: Event) -> Answer | None:
        """What the loop says; None: it had nothing to say. Raise NoAnswer."""
        import asyncio  # who asks has loaded it; the loop, which is an observer's place, need not
        from concurrent.futures import Future

        future: Future[Answer | None] = Future()
        # The dict keeps no event: the closure in the inbox does, so that its id is not used again.
        self._waiting[id(event)] = future
        try:
            put(lambda: event)
            return await asyncio.wait_for(asyncio.wrap_future(future), PATIENCE)
        except asyncio.TimeoutError as error:
            raise NoAnswer("the scheduler has not answered in time; what was asked for may still be done") from error
        finally:
            self._waiting.pop(id(event), None)
