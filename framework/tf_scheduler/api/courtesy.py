"""The API leaves the processor to the scheduler's loop: both are threads of a Python that runs one of them at a time.

However many clients ask, and however often: the API's thread takes SHARE of a processor at most, beyond a short burst.
Who asks more waits for the answer, in the order of asking, and the loop does not notice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Receive, Scope, Send

#: Of one processor.
SHARE = 0.2
#: Seconds of it that may be used at once.
BURST = 0.5
#: Seconds of a wait at least: less is not worth a timer, and may be too little to change the clock.
_LEAST = 0.001
#: Marathon would restart a scheduler that lets it wait.
_FIRST = ("/v1/health",)


class Courtesy:
    """An ASGI app around another; to be called in one thread only. `used`: seconds of processor time of that thread."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        used: Callable[[], float] = time.thread_time,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._app, self._used, self._clock = app, used, clock
        self._sleep = sleep
        self._left, self._seen = BURST, (0.0, 0.0)
        self._turn: asyncio.Lock | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in _FIRST:
            await self._wait()
        await self._app(scope, receive, send)

    async def _wait(self) -> None:
        if self._turn is None:
            self._turn, self._seen = asyncio.Lock(), (self._clock(), self._used())
        async with self._turn:  # first come, first served
            while (wait := self._debt()) > 0:
                await self._sleep(max(wait, _LEAST))

    def _debt(self) -> float:
        """Seconds until something may be used again."""
        now, used = self._clock(), self._used()
        before, used_before = self._seen
        self._seen = now, used
        self._left = min(BURST, self._left + SHARE * (now - before) - (used - used_before))
        return -self._left / SHARE
