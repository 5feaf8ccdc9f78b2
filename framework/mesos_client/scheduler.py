"""`SchedulerDriver`, which finds the leading Mesos master and resubscribes."""

from __future__ import annotations

import copy
import logging
import random
from contextlib import suppress
from functools import partial
from typing import Any, Callable, Mapping, Sequence

from tf_executor.contract.http import HttpReply

from . import backoff
from ._pymesos import MesosSchedulerDriver
from .backoff import Clock
from .credentials import Credentials, Tls
from .http import HttpRequest, Subscription, TransportError
from .masters import Detector, Leader, MasterList, ZooKeeperUrl, parse_masters
from .results import DriverDisconnected, Failed, NotConnected, RegistrationRefusedError, SendResult
from .stream import UNAUTHORIZED, OnEvent, OnState, StreamLoss, StreamProcess, reading
from .transport import Stream, Transport, result_of

#: Maximum consecutive redirects to follow without delay; more mean that masters point at each other.
MAX_REDIRECTS = 2
#: Statuses of a master that has just started or been elected.
_NOT_READY = (307, 404, 500, 502, 503, 504)


class SubscribeRetry:
    """Decide when to subscribe again, and to which master.

    All times are seconds of the same clock. `path`: path of the API, which follows the master's address in a URL.
    """

    def __init__(self, masters: MasterList, credentials: Credentials, path: str) -> None:
        self._masters, self._credentials, self._path = masters, credentials, path
        self._failures = self._redirects = 0
        self._renewed = False
        self._refused: int | None = None
        self._subscribed_at: float | None = None
        #: Start of the current round through the masters.
        self._round_at: float | None = None

    def subscribed(self, now: float) -> None:
        """Record a SUBSCRIBED event."""
        self._subscribed_at, self._redirects = now, 0
        self._refused, self._renewed = None, False

    def after(self, loss: StreamLoss, now: float) -> tuple[float, bool]:
        """Return the seconds to wait, and whether the master's rejection is new."""
        since, self._subscribed_at = self._subscribed_at, None
        if since is not None:
            # All schedulers lose a master simultaneously: jitter starts now.
            self._round_at = now
            self._failures = 0 if now - since >= backoff.STABLE_AFTER else self._failures
        if self._refreshed(loss) or self._redirected(loss):
            return 0.0, False
        refused = loss.status is not None and loss.status not in _NOT_READY
        is_new = refused and loss.status != self._refused
        self._refused = loss.status if refused else self._refused
        return self._delay(loss, refused, now), is_new

    def _refreshed(self, loss: StreamLoss) -> bool:
        """Whether to try a new token immediately: the first 401 may mean an expired token."""
        if loss.status != UNAUTHORIZED or loss.request is None:
            return False
        first, self._renewed = not self._renewed, True
        return self._credentials.renew(loss.request.headers.get("Authorization")) and first

    def _redirected(self, loss: StreamLoss) -> bool:
        """Whether to follow a redirect without delay."""
        asked = self._asked(loss)
        if loss.location and asked and self._redirects < MAX_REDIRECTS:
            self._redirects += 1
            with suppress(ValueError):  # invalid location
                self._masters.follow(asked, loss.location)
                return True
        self._redirects = 0
        return False

    def _delay(self, loss: StreamLoss, refused: bool, now: float) -> float:
        asked = self._asked(loss)
        has_untried = asked is not None and self._masters.failed(asked)
        if has_untried and not refused:
            return 0.0
        policy = backoff.REJECTED_BACKOFF if refused else backoff.UNAVAILABLE_BACKOFF
        wait = policy.delay(self._failures, random.uniform)
        self._failures += 1
        # The delay counts from the start of the round; `_round_at` is in the future if a wait was cut short.
        start = now if refused or self._round_at is None else min(now, self._round_at)
        self._round_at = max(now, start + wait)
        return self._round_at - now

    def _asked(self, loss: StreamLoss) -> str | None:
        return loss.request.url[: -len(self._path)] if loss.request is not None else None


logger = logging.getLogger(__name__)

PATH = "/api/v1/scheduler"
#: Path of the master's operator API.
OPERATOR_PATH = "/api/v1"
#: The master's default; SUBSCRIBED contains the actual value.
HEARTBEAT_SECONDS = 15.0
#: Missed heartbeats after which a stream is dead (docs/scheduler-http-api.md, "Network partitions").
HEARTBEATS_MISSED = 5


#: Sends a call without content, such as GET_FRAMEWORKS, to the operator API of the master.
AskMaster = Callable[[str], SendResult]


class _MasterNotReadyError(Exception):
    """The master cannot answer calls of its operator API yet; a retry may succeed."""

    def __init__(self, loss: StreamLoss) -> None:
        super().__init__(loss.reason)
        self.loss = loss


# pymesos has no annotations, so the base class is Any for mypy.
class SchedulerDriver(StreamProcess, MesosSchedulerDriver):  # type: ignore[misc]
    """Stay subscribed to the leading master. Only `teardown` removes the framework.

    Args:
        framework: FrameworkInfo. The driver copies it, and sends it unchanged, with `id` when the id is known.
        master: `host:port`, a comma-separated list, `zk://user:password@host:port,host:port/path`, or a Detector.
        on_event: Receives each event except HEARTBEAT as a dict. Runs in the driver's thread; should only enqueue.
        on_state: Receives DriverDisconnected and DriverAborted, in the same thread.
        tls: Makes https the default scheme. Without it, https:// masters are verified against the system's CAs.
        suppressed_roles: Roles without offers after a subscription.
        offer_constraints: OfferConstraints of SUBSCRIBE; masters before 1.11 ignore them.
        call_timeout: Seconds for each step of a call.
        permit: Called before each subscription; an exception forbids it. The driver then waits for `stop`.
        before_registration: Called before each subscription without a framework id. Returns the id of a framework to
            continue, or None to register a new one. Raises RegistrationRefusedError to abort the driver, and
            TransportError to retry later.

    The caller acknowledges updates. Raises ValueError for an invalid master or unusable TLS files.
    """

    def __init__(
        self,
        framework: Mapping[str, Any],
        master: str | Detector,
        *,
        on_event: OnEvent,
        on_state: OnState,
        credentials: Credentials | None = None,
        tls: Tls | None = None,
        suppressed_roles: Sequence[str] = (),
        offer_constraints: Mapping[str, Any] | None = None,
        call_timeout: float = 10.0,
        permit: Callable[[], None] | None = None,
        before_registration: Callable[[AskMaster], str | None] | None = None,
        clock: Clock = Clock(),  # noqa: B008 - it has no state
    ) -> None:
        super().__init__(
            None, copy.deepcopy(dict(framework)), str(master), implicit_acknowledgements=False, failover=True
        )
        self._timeout = call_timeout
        self._scheme = "https" if tls else "http"
        self._detector = detector_of(master)
        self._masters = MasterList(parse_masters(str(master), self._scheme) if self._detector is None else ())
        self._suppressed_roles = tuple(suppressed_roles)
        self._offer_constraints = copy.deepcopy(offer_constraints)
        self._leaving = False
        self._permit = permit
        self._before_registration = before_registration
        #: Reason for leaving the current master, until reported.
        self._moving: str | None = None
        credentials = credentials or Credentials()
        self._retry = SubscribeRetry(self._masters, credentials, PATH)
        if tls is not None and tls.verify is False:
            logger.warning("certificate verification is off: another host can impersonate the master")
        transport = Transport(tls, call_timeout)
        self._prepare(transport, credentials, on_event, on_state, "mesos-scheduler-events", call_timeout, clock)

    @property
    def framework(self) -> dict[str, Any]:
        """Copy of the FrameworkInfo."""
        return copy.deepcopy(self._framework)

    @property
    def master(self) -> str | None:
        """Base URL of the current master; None while a detector sees none."""
        return self._masters.current

    def start(self) -> None:
        super().start()
        if self._detector is not None:
            self._detector.start(self._detected)

    def send(self, call: Mapping[str, Any], subscription: int | None = None) -> SendResult:
        """Add framework_id to a call such as {"type": "ACCEPT", "accept": {...}}; send it.

        `subscription`: number of the subscription whose events led to the call. If it has ended, nothing is sent.
        """
        return self._post({**call, "framework_id": {"value": self.framework_id}}, subscription)

    def ask(self, kind: str) -> SendResult:
        """Send a call such as GET_FRAMEWORKS to the current master's operator API, once."""
        call = {"type": kind, **({"get_metrics": {}} if kind == "GET_METRICS" else {})}
        if self.master is None:
            return NotConnected()
        stream = self._transport.stream()
        try:
            return result_of(exchange(self._subscribe_request(self.master + OPERATOR_PATH, call), stream)[0])
        except TransportError as error:
            return Failed(str(error))
        finally:
            stream.close()

    def teardown(self) -> SendResult:
        """Remove the framework with all its tasks, and stop. No other call does this."""
        self._leaving = True
        result = self.send({"type": "TEARDOWN"})
        if result.ok:
            self.stop()
        else:
            self._leaving = False
            if not self.connected:
                self.restart_stream()
        return result

    def resubscribe(self, subscription: int, reason: str) -> bool:
        """Subscribe again because of `reason`; return False if `subscription` has ended."""
        if not self.connected or subscription != self.subscription:
            return False
        self._moving = reason
        self.restart_stream()
        return True

    def _halt(self) -> bool:
        first = super()._halt()
        if self._detector is not None:
            self._detector.stop()
        return first

    # For the detector's thread

    def _detected(self, leader: Leader | None, reason: str) -> None:
        url = leader.url(self._scheme) if leader else ""
        self._masters.replace((url,) if url else ())
        self._moving = reason or f"{url} is the new leader"
        if leader is None:
            self._last_failure = self._moving
        self.restart_stream()

    # For the reader thread

    def _subscription(self) -> HttpRequest | None:
        master = self._masters.current
        return None if master is None or not self._permitted() else self._subscribe_call(master + PATH)

    def _subscribe_call(self, url: str) -> HttpRequest:
        info = self.framework
        subscribe: dict[str, Any] = {"framework_info": info}
        if self._suppressed_roles:
            subscribe["suppressed_roles"] = list(self._suppressed_roles)
        if self._offer_constraints:
            subscribe["offer_constraints"] = self._offer_constraints
        body: dict[str, Any] = {"type": "SUBSCRIBE", "subscribe": subscribe}
        if "id" in info:
            body["framework_id"] = info["id"]
        return self._subscribe_request(url, body)

    def _follow(self, request: HttpRequest, restarts: int) -> StreamLoss:
        """Read the stream. Before a new registration, first ask `before_registration`."""
        if self._before_registration is None or "id" in self._framework:
            return super()._follow(request, restarts)
        try:
            chosen = self._before_registration(partial(self._ask, request.url[: -len(PATH)], restarts))
        except _MasterNotReadyError as error:
            return error.loss
        except RegistrationRefusedError as error:
            self._give_up(str(error), by_master=False)
            return StreamLoss(str(error))
        if not self._permitted():  # the answers took time
            return StreamLoss(self._last_failure or "not permitted")
        if chosen is not None:
            self._framework["id"] = {"value": chosen}
        return super()._follow(self._subscribe_call(request.url), restarts)

    def _ask(self, master: str, restarts: int, kind: str) -> SendResult:
        """Call the operator API; after a 401 once more. Raises _MasterNotReadyError."""
        for is_last in (False, True):
            call = self._subscribe_request(master + OPERATOR_PATH, {"type": kind})
            reply, location = self._with_stream(restarts, partial(exchange, call))
            refused = call.headers.get("Authorization")
            if is_last or reply.status != UNAUTHORIZED or not self._credentials.renew(refused):
                break
        if reply.status in _NOT_READY:
            raise _MasterNotReadyError(StreamLoss(f"HTTP {reply.status}: {reply.text}", reply.status, location))
        return result_of(reply)

    def _permitted(self) -> bool:
        """Ask `permit`, because a subscription disconnects another scheduler."""
        try:
            if self._permit is not None:
                self._permit()
        except Exception as error:  # the permit's own
            logger.warning("not subscribing: %s", error)
            self._last_failure = str(error)
            return False
        return True

    def _subscribed(self, event: Mapping[str, Any], session: Subscription, stream: Stream) -> None:
        with reading(event):
            info = event["subscribed"]
            self._framework["id"] = {"value": info["framework_id"]["value"]}
            interval = info.get("heartbeat_interval_seconds") or HEARTBEAT_SECONDS
            stream.set_silence_limit(HEARTBEATS_MISSED * interval)
        self._retry.subscribed(self._clock.now())
        self._moving = None
        self._establish(session)

    def _lost(self, loss: StreamLoss) -> float | None:
        reason, self._moving = self._moving or loss.reason, None
        if self._leaving:
            # The master closes the stream before it answers TEARDOWN. Reconnect only if the call fails after all.
            self._drop_session(reason, interrupt=False)
            return 2 * self._call_timeout
        had_session = self._drop_session(reason)
        delay, is_rejected = self._retry.after(loss, self._clock.now())
        if had_session or is_rejected:
            self._contained(self._on_state, DriverDisconnected(reason))
        return delay


def exchange(request: HttpRequest, stream: Stream) -> tuple[HttpReply, str | None]:
    """Send a request; return the reply, and the location if it is a redirect."""
    head = stream.open(request)
    return HttpReply(head.status, stream.read()), head.headers.get("location")


def detector_of(master: str | Detector) -> Detector | None:
    if isinstance(master, Detector):
        return master
    if not ZooKeeperUrl.is_zookeeper(master):
        return None
    url = ZooKeeperUrl.parse(master)
    # Load kazoo only if needed: it is slow to import.
    from mesos_client.zookeeper_detector import ZooKeeperDetector

    return ZooKeeperDetector(url)
