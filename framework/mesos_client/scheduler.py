"""`SchedulerDriver`: a pymesos scheduler driver with its connection handling replaced."""

from __future__ import annotations

import copy
import logging
from typing import Any, Callable, Mapping, Sequence

from mesos_client._pymesos import MesosSchedulerDriver
from mesos_client.calls import JSON_HEADERS, Session, encode
from mesos_client.clock import Clock
from mesos_client.credentials import Credentials
from mesos_client.detector import Detector, Leader, ZooKeeperUrl
from mesos_client.masters import Masters, parse_masters
from mesos_client.process import OnEvent, OnState, StreamProcess, authorization
from mesos_client.requests_transport import RequestsTransport
from mesos_client.results import Disconnected, SendResult
from mesos_client.retry import Retry
from mesos_client.scheduler_callbacks import SchedulerCallbacks
from mesos_client.scheduler_calls import SchedulerCalls
from mesos_client.subscriber import Loss
from mesos_client.tls import Tls
from mesos_client.transport import Request, Stream

logger = logging.getLogger(__name__)

PATH = "/api/v1/scheduler"
#: The master's constant; each SUBSCRIBED tells it again.
HEARTBEAT_SECONDS = 15.0
#: A stream that is silent for so many heartbeats is dead. Source: docs/scheduler-http-api.md, "Network partitions".
HEARTBEATS_MISSED = 5


# pymesos has no annotations, so that mypy takes the base class for Any.
class SchedulerDriver(SchedulerCalls, SchedulerCallbacks, StreamProcess, MesosSchedulerDriver):  # type: ignore[misc]
    """Subscribes to a master, and again whenever that is lost, until it is stopped. Only `teardown` ends the framework.

    `framework` is the FrameworkInfo; it is copied and sent exactly as given, with `id` once that is known. `master` is
    `host:port`, several with commas between, `zk://user:password@host:port,host:port/path`, or a Detector. `on_event`
    gets each event but HEARTBEAT as a plain dict, `on_state` gets Disconnected and Aborted; both are called in the
    driver's thread and should only enqueue. `credentials` are asked for each request. `tls` makes https the scheme of
    masters that name none; without it, https:// is verified by the machine's authorities. `suppressed_roles` are not
    offered anything after a subscription. `offer_constraints` is the OfferConstraints of SUBSCRIBE; a master before
    1.11 ignores it. `call_timeout` is in seconds, for each step of a call. `scheduler` is an
    object with pymesos' Scheduler callbacks, called besides `on_event`. `permit` is called before each subscription,
    and raises when none may be made: then the driver only waits to be stopped. Updates are never acknowledged unless
    the caller does so. Raises ValueError for a master that cannot be read, and for files of `tls` that cannot be
    loaded.
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
        scheduler: Any = None,
        permit: Callable[[], None] | None = None,
        clock: Clock = Clock(),  # noqa: B008 - it has no state
    ) -> None:
        super().__init__(
            scheduler, copy.deepcopy(dict(framework)), str(master), implicit_acknowledgements=False, failover=True
        )
        self._timeout = call_timeout
        self._scheme = "https" if tls else "http"
        self._detector = _detector(master)
        self._masters = Masters(parse_masters(str(master), self._scheme) if self._detector is None else ())
        self._suppressed_roles = tuple(suppressed_roles)
        self._offer_constraints = copy.deepcopy(offer_constraints)
        self._leaving = False
        self._permit = permit
        #: Why we left a master ourselves, until that is told.
        self._moving: str | None = None
        credentials = credentials or Credentials()
        self._retry = Retry(self._masters, credentials, PATH)
        transport = RequestsTransport(tls)
        self._prepare(transport, credentials, on_event, on_state, "mesos-scheduler-events", call_timeout, clock)

    @property
    def framework(self) -> dict[str, Any]:
        """A copy of the FrameworkInfo that is sent."""
        return copy.deepcopy(self._framework)

    @property
    def master(self) -> str | None:
        """Base URL of the master that is asked now; None when a detector sees none."""
        return self._masters.current

    def change_master(self, master: str | None) -> None:
        """Leave the present master for another, or for none."""
        self._move(parse_masters(master, self._scheme) if master else (), f"told to ask {master or 'nobody'}")

    def start(self) -> None:
        super().start()
        if self._detector is not None:
            self._detector.start(self._detected)

    def send(self, call: Mapping[str, Any], subscription: int | None = None) -> SendResult:
        """Send a v1 scheduler call, such as {"type": "ACCEPT", "accept": {...}}; framework_id is added here.

        With `subscription`, a value of the property of that name, nothing is sent unless that one still lasts: what
        was decided on the events of an earlier one is void.
        """
        return self._post({**call, "framework_id": {"value": self.framework_id}}, subscription)

    def teardown(self) -> SendResult:
        """End the framework and all its tasks, for ever; then stop. The only call that does so."""
        self._leaving = True
        result = self.send({"type": "TEARDOWN"})
        if result.ok:
            self.stop()
        else:
            self._leaving = False
            if not self.connected:
                self.restart_stream()
        return result

    def _halt(self) -> bool:
        first = super()._halt()
        if self._detector is not None:
            self._detector.stop()
        return first

    # For the detector's thread

    def _detected(self, leader: Leader | None, reason: str) -> None:
        url = leader.url(self._scheme) if leader else ""
        self._move((url,) if url else (), reason or f"{url} leads now")

    def _move(self, base_urls: Sequence[str], reason: str) -> None:
        self._masters.replace(base_urls)
        self._moving = reason
        if not base_urls:
            self._last_failure = reason
        self.restart_stream()

    # For the subscriber's thread

    def _subscription(self) -> Request | None:
        master, info = self._masters.current, self.framework
        if master is None or not self._permitted():
            return None
        subscribe: dict[str, Any] = {"framework_info": info}
        if self._suppressed_roles:
            subscribe["suppressed_roles"] = list(self._suppressed_roles)
        if self._offer_constraints:
            subscribe["offer_constraints"] = self._offer_constraints
        body: dict[str, Any] = {"type": "SUBSCRIBE", "subscribe": subscribe}
        if "id" in info:
            body["framework_id"] = info["id"]
        headers = {**JSON_HEADERS, **authorization(self._credential()), "Connection": "close"}
        return Request(master + PATH, headers, encode(body), self._call_timeout)

    def _permitted(self) -> bool:
        """To subscribe takes the framework away from whoever has it."""
        try:
            if self._permit is not None:
                self._permit()
        except Exception as error:  # the permit's own
            logger.warning("not subscribing: %s", error)
            self._last_failure = str(error)
            return False
        return True

    def _received(self, event: dict[str, Any], session: Session, stream: Stream) -> None:
        kind = event.get("type")
        if kind == "HEARTBEAT":
            return self._contained(self._callback_heartbeat)
        if kind == "SUBSCRIBED":
            self._subscribed(event["subscribed"], session, stream)
        self.process_event(event)
        self._contained(self._callback, event)
        if kind == "ERROR":
            self._give_up(str(event.get("error", {}).get("message", "")))
        return None

    def _subscribed(self, info: Mapping[str, Any], session: Session, stream: Stream) -> None:
        self._framework["id"] = {"value": info["framework_id"]["value"]}
        interval = info.get("heartbeat_interval_seconds") or HEARTBEAT_SECONDS
        stream.set_silence_limit(HEARTBEATS_MISSED * interval)
        self._retry.subscribed(self._clock.now())
        self._moving = None
        self._establish(session)

    def _lost(self, loss: Loss) -> float | None:
        reason, self._moving = self._moving or loss.reason, None
        if self._leaving:
            # The master ends the stream before it answers TEARDOWN. The wait is for a call that fails after all.
            self._drop_session(reason, interrupt=False)
            return 2 * self._call_timeout
        had_session = self._drop_session(reason)
        step = self._retry.after(loss, self._clock.now())
        if had_session or step.refused:
            self._report_disconnected(Disconnected(reason))
        return step.delay

    def _report_disconnected(self, state: Disconnected) -> None:
        self._report(state)
        self._contained(self._callback_disconnected)


def _detector(master: str | Detector) -> Detector | None:
    if isinstance(master, Detector):
        return master
    if not ZooKeeperUrl.is_one(master):
        return None
    url = ZooKeeperUrl.parse(master)
    # Only who needs it loads kazoo.
    from mesos_client.zookeeper_detector import ZooKeeperDetector

    return ZooKeeperDetector(url)
