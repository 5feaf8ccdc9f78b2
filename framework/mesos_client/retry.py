"""When and where a scheduler subscribes again after it has lost its subscription, or did not get one."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass

from mesos_client import backoff
from mesos_client.credentials import Credentials
from mesos_client.masters import Masters
from mesos_client.subscriber import Loss

#: Redirects in a row that are followed at once; more are masters pointing at each other.
MAX_REDIRECTS = 2
#: Statuses of a master that is there, but not ready: it has just started, been elected, or not yet installed its
#: routes.
_NOT_READY = (307, 404, 500, 502, 503, 504)
_UNAUTHORIZED = 401


@dataclass(frozen=True)
class Next:
    """What to do now."""

    #: Seconds before the next attempt.
    delay: float
    #: Whether the master says no, for another reason than last time: worth a report though nothing was lost.
    refused: bool = False


class Retry:
    """Remembers the failures since the last subscription that held. Times are in seconds, of any one clock.

    `path` is that of the API: what stands before it in a URL is the master.
    """

    def __init__(self, masters: Masters, credentials: Credentials, path: str) -> None:
        self._masters, self._credentials, self._path = masters, credentials, path
        self._failures = self._redirects = 0
        self._renewed = False
        self._refused: int | None = None
        self._subscribed_at: float | None = None
        #: When the masters were last begun to be asked in turn.
        self._round_at: float | None = None

    def subscribed(self, now: float) -> None:
        """The master has answered with SUBSCRIBED."""
        self._subscribed_at, self._redirects = now, 0
        self._refused, self._renewed = None, False

    def after(self, loss: Loss, now: float) -> Next:
        """An attempt has failed, or a subscription has ended."""
        since, self._subscribed_at = self._subscribed_at, None
        if since is not None:
            # All schedulers lose a master at once: each waits for a time of its own from now on.
            self._round_at = now
            self._failures = 0 if now - since >= backoff.STEADY_AFTER else self._failures
        if self._refreshed(loss) or self._redirected(loss):
            return Next(0.0)
        refused = loss.status is not None and loss.status not in _NOT_READY
        news = refused and loss.status != self._refused
        self._refused = loss.status if refused else self._refused
        return Next(self._delay(loss, refused, now), news)

    def _refreshed(self, loss: Loss) -> bool:
        """Whether a new token is to be tried at once: tokens expire, so that the first 401 is no refusal yet."""
        if loss.status != _UNAUTHORIZED or loss.request is None:
            return False
        first, self._renewed = not self._renewed, True
        return self._credentials.renew(loss.request.headers.get("Authorization")) and first

    def _redirected(self, loss: Loss) -> bool:
        """Whether another master is to be asked at once."""
        asked = self._asked(loss)
        if loss.location and asked and self._redirects < MAX_REDIRECTS:
            self._redirects += 1
            with suppress(ValueError):  # a location that cannot be read leads nowhere
                self._masters.follow(asked, loss.location)
                return True
        self._redirects = 0
        return False

    def _delay(self, loss: Loss, refused: bool, now: float) -> float:
        asked = self._asked(loss)
        others = asked is not None and self._masters.failed(asked)
        if others and not refused:
            return 0.0
        wait = (backoff.REFUSED if refused else backoff.ABSENT).delay(self._failures, random.uniform)
        self._failures += 1
        # From one round to the next: what the round itself took, with masters that do not answer, counts. It began
        # early when somebody ended the wait.
        began = now if refused or self._round_at is None else min(now, self._round_at)
        self._round_at = max(now, began + wait)
        return self._round_at - now

    def _asked(self, loss: Loss) -> str | None:
        return loss.request.url[: -len(self._path)] if loss.request is not None else None
