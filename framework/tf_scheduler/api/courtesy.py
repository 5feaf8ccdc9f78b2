"""The API leaves the processor to the scheduler's loop: both are threads of a Python that runs one of them at a time.

However many clients ask, and however often: the API's thread takes SHARE of a processor at most, beyond a short burst,
and only LEAST of it while other threads have work. Who asks more waits for the answer, and the loop does not notice.
Clients take turns: one that asks without end makes another wait for a single answer of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from .clients import address_of
from .guard import HEALTH
from .turns import Turns

#: Of one processor: while nobody else of this process wants it, and while somebody does.
SHARE, LEAST = 0.2, 0.05
#: Seconds of it that may be used at once.
BURST = 0.5
#: Seconds that may be owed at most: what nobody asked for, as connections that come and go, is forgiven.
DEBT = 0.5
#: Seconds of a wait at least: less is not worth a timer, and may be too little to change the clock.
_WAIT = 0.001


def _by_address(scope: Scope) -> Sequence[Hashable]:
    return (address_of(scope),)


class Courtesy:
    """An ASGI app around another; to be called in one thread only.

    `line`: where a request waits, as a path of lines. `used`: seconds of processor time of that thread; `spent`: of all
    threads, and this one.
    """

    def __init__(
        self,
        app: ASGIApp,
        line: Callable[[Scope], Sequence[Hashable]] = _by_address,
        *,
        used: Callable[[], float] = time.thread_time,
        spent: Callable[[], float] = time.process_time,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._app, self._line, self._clock = app, line, clock
        self._used, self._spent = used, spent
        self._sleep = sleep
        self._left = BURST
        #: Time, `used` and `spent` of the last look, in the thread that calls us.
        self._seen: tuple[float, float, float] | None = None
        self._waiting: Turns[asyncio.Future[None]] = Turns()
        self._usher: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] != HEALTH:
            await self._wait(scope)
        await self._app(scope, receive, send)

    async def _wait(self, scope: Scope) -> None:
        if self._usher is None and self._debt() <= 0:
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.put(self._line(scope), turn)
        if self._usher is None:
            self._usher = asyncio.create_task(self._call_in())
        await turn

    async def _call_in(self) -> None:
        """One after the other: who is let in has run, and was counted, when the next is looked for."""
        try:
            while self._waiting:
                while (wait := self._debt()) > 0:
                    await self._sleep(max(wait, _WAIT))
                turn = self._waiting.take()
                if not turn.done():  # its client's task may have been cancelled
                    turn.set_result(None)
                    await asyncio.sleep(0)
        finally:
            self._usher = None

    def _debt(self) -> float:
        """Seconds until something may be used again."""
        now = self._clock(), self._used(), self._spent()
        passed, ours, all_threads = (new - old for new, old in zip(now, self._seen or now, strict=True))
        self._seen = now
        others = min(max(0.0, all_threads - ours), passed)
        left = self._left + SHARE * (passed - others) + LEAST * others - ours
        self._left = max(-DEBT, min(BURST, left))
        return -self._left / SHARE
