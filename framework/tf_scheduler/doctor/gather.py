"""Gather facts from the master, the agents, the state store and the API.

Requests are made in parallel, each with a timeout. A failure becomes an Unknown with its reason.
"""

from __future__ import annotations

import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from dcos_command.client import ServiceClient, api_path
from dcos_command.errors import CommandError
from mesos_client.http import MALFORMED
from mesos_client.masters import Leader, MasterList, ZooKeeperUrl, parse_masters
from tf_executor.contract.http import HttpReply, is_loopback
from tf_executor.contract.text import format_duration
from tf_scheduler.errors import SchedulerError
from tf_scheduler.mesos.neighbours import find_running
from tf_scheduler.mesos.offer_gate import parse_flags

from .facts import (
    AgentFacts,
    ApiFacts,
    ArtefactFacts,
    CertificateFacts,
    Facts,
    FrameworkFacts,
    LaptopFacts,
    MasterFacts,
    ServiceFacts,
    StoreFacts,
    Unknown,
)
from .files import PARALLEL, TIMEOUT, gather_artefacts
from .requests import Access, FactError, offset_of, parse, reading, send

Document = Mapping[str, Any]
T = TypeVar("T")


#: Maximum number of agents that are asked; those with tasks of the service first.
_MAX_AGENTS = 200
_MAX_EVENTS = 1000


def attempt(gather: Callable[[], T]) -> T | Unknown:
    """Return the fact, or Unknown with the error as the reason. Never raises."""
    try:
        return gather()
    except (FactError, CommandError, SchedulerError) as error:
        return Unknown(str(error))
    except MALFORMED:
        return Unknown("a server returned an invalid answer")
    except Exception as error:  # a check that fails must not hide the others
        return Unknown(f"{type(error).__name__}: {error}")


@dataclass(frozen=True, slots=True)
class Subject:
    """What to examine. The options include all defaults."""

    options: Document | Unknown
    #: Address of the master: host:port, several with commas, or zk://...; empty: that of the options.
    master: str
    service: ServiceClient | Unknown
    #: Examines this machine, with the options whose tasks run on it; None: only the security is examined.
    laptop: Callable[[Document | None], LaptopFacts] | None

    @property
    def is_local(self) -> bool:
        """Whether tasks run on this machine."""
        if self.master or isinstance(self.options, Unknown):
            return not self.master or is_loopback(self.master)
        return is_loopback(str(self.options["mesos"]["master"]))


def gather(subject: Subject) -> Facts:
    """Gather all facts. Never raises: each missing fact is Unknown."""
    with ThreadPoolExecutor(PARALLEL) as pool:
        service = pool.submit(attempt, lambda: _service(subject))
        store = pool.submit(attempt, lambda: _store(subject.options))
        laptop = pool.submit(attempt, lambda: _laptop(subject))
        artefacts = pool.submit(attempt, lambda: _artefacts(subject))
        master = attempt(lambda: _master(subject))
        agents = attempt(lambda: _agents(_known(master), service.result(), pool))
        api = attempt(lambda: _api(subject, master))
        urls = [] if isinstance(subject.service, Unknown) else [subject.service.url]
        urls += [master.facts.url] if isinstance(master, Cluster) else []
        encrypted = [url for url in urls if url.startswith("https:")]
        certificates = tuple(pool.map(lambda url: _certificate(url, subject), encrypted))
        return Facts(
            time.time(),
            subject.options,
            laptop.result(),
            master.facts if isinstance(master, Cluster) else master,
            agents,
            store.result(),
            api,
            certificates,
            service.result(),
            artefacts.result(),
        )


def _laptop(subject: Subject) -> LaptopFacts:
    if subject.laptop is None:
        raise FactError("not part of --security")
    return subject.laptop(None if isinstance(subject.options, Unknown) or not subject.is_local else subject.options)


def _artefacts(subject: Subject) -> tuple[ArtefactFacts, ...]:
    if subject.laptop is None:
        raise FactError("not part of --security")
    return gather_artefacts(_known(subject.options), is_local=subject.is_local)


def _known(fact: T | Unknown) -> T:
    if isinstance(fact, Unknown):
        raise FactError(fact.reason)
    return fact


# --- Master and agents


@dataclass(frozen=True, slots=True)
class Cluster:
    """The master's facts, and access to its agents: (id, host name, access)."""

    facts: MasterFacts
    agents: tuple[tuple[str, str, Access], ...]


def _master(subject: Subject) -> Cluster:
    access, reply = _leading([_master_access(subject)] if _is_on_dcos(subject) else _masters(subject))
    server = f"the master at {access.url}"
    state = parse(reply, server)
    with reading(server):
        live = [item for item in state["frameworks"] if not item.get("completed")]
        frameworks = tuple(FrameworkFacts(item["id"], item["name"], item.get("webui_url", "")) for item in live)
        agents = tuple(
            (item["id"], item["hostname"], _agent_access(access, item["id"], item["pid"])) for item in state["slaves"]
        )
        tasks = [_operator_task(task) for item in live for task in item["tasks"]]
        running = frozenset(find_running({"tasks": tasks}, {item["id"]: item["user"] for item in live}))
        return Cluster(MasterFacts(access.url, offset_of(reply), frameworks, running), agents)


def _operator_task(task: Document) -> Document:
    """Return a task of /state in the form of the operator API."""
    ids = {"framework_id": {"value": task["framework_id"]}, "agent_id": {"value": task["slave_id"]}}
    return {**task, **ids}


def _is_on_dcos(subject: Subject) -> bool:
    """Whether requests to the master go through Admin Router."""
    return not (subject.master or isinstance(subject.service, Unknown) or subject.service.direct)


def _master_access(subject: Subject) -> Access:
    """Return access to the master through Admin Router."""
    cluster = _known(subject.service).cluster
    token = {"Authorization": f"token={cluster.token.strip()}"} if cluster.token else {}
    return Access(f"{cluster.url}{_MESOS}", token, cluster.tls())


#: Path of the master below Admin Router.
_MESOS = "/mesos"


def _masters(subject: Subject) -> list[Access]:
    """Return access to each master (zk://: only to the leader). Raises FactError."""
    options = subject.options
    if not subject.master and isinstance(options, Unknown):
        raise FactError("the master is unknown: pass --master or --options")
    scheme, ca_file, address = "http", "", subject.master
    if not isinstance(options, Unknown):
        scheme, ca_file = "https" if options["tls"]["enabled"] else "http", options["tls"]["ca_file"]
        address = address or str(options["mesos"]["master"])
    context = _context(ca_file)
    if ZooKeeperUrl.is_zookeeper(address):
        return [Access(_leader(ZooKeeperUrl.parse(address)).url(scheme), context=context)]
    return [Access(url, context=context) for url in parse_masters(address, scheme)]


def _leading(masters: Sequence[Access]) -> tuple[Access, HttpReply]:
    """Return the leading master and its state. Raises FactError if none answers."""
    problems = []
    for access in masters:
        try:
            reply = send(access, "/state")
            location = reply.headers.get("Location")
            if reply.status == _REDIRECTED and location and not access.headers:
                leading = MasterList([access.url])
                with reading(access.url):
                    leading.follow(access.url, location)
                access = replace(access, url=leading.current or access.url)
                reply = send(access, "/state")
            return access, reply
        except FactError as error:
            problems.append(str(error))
    raise FactError("; ".join(problems))


_REDIRECTED = 307


def _context(ca_file: str) -> ssl.SSLContext:
    """Return a TLS context, without the CA file if this machine does not have it."""
    return ssl.create_default_context(cafile=ca_file if ca_file and Path(ca_file).is_file() else None)


def _leader(url: ZooKeeperUrl) -> Leader:
    from mesos_client.zookeeper_detector import ZooKeeperDetector  # slow import, needed for zk:// only

    answers: list[tuple[Leader | None, str]] = []
    done, detector = threading.Event(), ZooKeeperDetector(url)

    def keep_answer(leader: Leader | None, reason: str) -> None:
        answers.append((leader, reason))
        done.set()

    detector.start(keep_answer)
    done.wait(TIMEOUT)
    detector.stop()
    leader, reason = answers[-1] if answers else (None, "no answer")
    if leader is None:
        raise FactError(f"ZooKeeper at {url} does not name a master: {reason}")
    return leader


def _agent_access(master: Access, agent_id: str, pid: str) -> Access:
    """Return access to an agent: via Admin Router on DC/OS, else without a login."""
    if master.url.endswith(_MESOS):
        return replace(master, url=f"{master.url.removesuffix(_MESOS)}/agent/{agent_id}")
    return Access(f"{urlsplit(master.url).scheme}://{pid.rpartition('@')[2]}", context=master.context)


def _agents(cluster: Cluster, service: ServiceFacts | Unknown, pool: ThreadPoolExecutor) -> tuple[AgentFacts, ...]:
    own = "" if isinstance(service, Unknown) else service.framework_id
    used = {task.agent for task in cluster.facts.running if task.framework == own}
    agents = sorted(cluster.agents, key=lambda agent: (agent[0] not in used, agent[1]))[:_MAX_AGENTS]
    return tuple(pool.map(lambda agent: _agent(*agent), agents))


def _agent(agent_id: str, hostname: str, access: Access) -> AgentFacts:
    reply = attempt(lambda: send(access, "/flags"))
    flags = attempt(lambda: parse_flags(f"agent {hostname}", _known(reply)))
    offset = None if isinstance(reply, Unknown) else offset_of(reply)
    return AgentFacts(agent_id, hostname, flags, offset, runs_as_root(access.url))


def runs_as_root(url: str) -> bool | None:
    """Return whether root owns the listener at a loopback URL; None if unknown."""
    parts = urlsplit(url)
    if not is_loopback(url):
        return None
    try:
        address = f"{socket.inet_aton(parts.hostname or '')[::-1].hex().upper()}:{parts.port:04X}"
    except OSError:  # a name, or IPv6
        return None
    with suppress(OSError):  # not on Linux
        rows = map(str.split, Path("/proc/net/tcp").read_text().splitlines())
        return next((fields[7] == "0" for fields in rows if (fields[1], fields[3]) == (address, "0A")), None)
    return None


# --- State store


def _store(options: Document | Unknown) -> StoreFacts:
    from tf_scheduler.store.interface import StoreAddressError
    from tf_scheduler.store.zookeeper import ZooKeeperAddress, is_world_accessible  # slow import

    address = str(_known(options)["scheduler"]["state"])
    if not address.startswith(("zk://", "zks://")):
        return StoreFacts(address, is_open=False)
    try:
        parsed = ZooKeeperAddress.parse(address)
    except StoreAddressError as error:
        # A file with credentials or a key may exist only on the scheduler's machine.
        raise FactError(str(error).partition("; expected")[0]) from error
    is_open = is_world_accessible(parsed, str(_known(options)["service"]["name"]), TIMEOUT)
    return StoreFacts(str(parsed), is_open, bool(parsed.credentials or (parsed.tls and parsed.tls.key)))


# --- API


def _api(subject: Subject, master: Cluster | Unknown) -> ApiFacts:
    """Try a write without a token, for a plan that does not exist."""
    access = _api_access(subject, master)
    reply = send(access, f"/v1/plans/doctor-{secrets.token_hex(8)}/start", b"{}")
    return ApiFacts(access.url, reply.status, _is_from_master(access.url, master))


def _api_access(subject: Subject, master: Cluster | Unknown) -> Access:
    """Return access to the scheduler itself, because Admin Router requires a login."""
    service = _known(subject.service)
    if service.direct:
        return Access(service.url, context=service.cluster.tls())
    names = {service.name.strip("/")}
    urls = [item.webui_url for item in _known(master).facts.frameworks if item.name.strip("/") in names]
    if not urls or not urls[0]:
        raise FactError(f"the master does not know the address of the API of {service.name}")
    return Access(urls[0].rstrip("/"), context=service.cluster.tls())


def _is_from_master(url: str, master: Cluster | Unknown) -> bool:
    """Return whether this machine's requests to the URL have the master's address."""
    if isinstance(master, Unknown) or is_loopback(url):
        return False
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    with socket.create_connection((parts.hostname or "", port), TIMEOUT) as connection:
        return bool(connection.getsockname()[0] == urlsplit(master.facts.url).hostname)


# --- Certificates


def _certificate(url: str, subject: Subject) -> CertificateFacts:
    """Verify a server's certificate, and return the days until it expires."""
    parts = urlsplit(url)
    context = _context("" if isinstance(subject.options, Unknown) else subject.options["tls"]["ca_file"])
    if not isinstance(subject.service, Unknown):
        context = subject.service.cluster.tls() or context
    address = parts.hostname or "", parts.port or 443
    try:
        with (
            socket.create_connection(address, TIMEOUT) as connection,
            context.wrap_socket(connection, server_hostname=parts.hostname) as encrypted,
        ):
            end = str((encrypted.getpeercert() or {}).get("notAfter", ""))
    except ssl.SSLCertVerificationError as error:
        if error.verify_code == _EXPIRED:
            return CertificateFacts(url, days_left=-1.0)
        return CertificateFacts(url, problem=f"its certificate cannot be verified: {error.verify_message}")
    except OSError as error:
        return CertificateFacts(url, problem=f"no TLS connection: {error}")
    if not end:
        return CertificateFacts(url, problem="its certificate is not verified")
    return CertificateFacts(url, (ssl.cert_time_to_seconds(end) - time.time()) / 86_400)


_EXPIRED = 10  # X509_V_ERR_CERT_HAS_EXPIRED


# --- Service


def _service(subject: Subject) -> ServiceFacts:
    service = _known(subject.service)
    with reading(f"the scheduler at {service.url}"):
        return _service_facts(service)


def _service_facts(service: ServiceClient) -> ServiceFacts:
    ids = service.get(api_path("state", "frameworkId"))
    events = service.get(api_path("events"), limit=str(_MAX_EVENTS))["events"]
    mesos = service.get(api_path("debug", "mesos"))
    refused = mesos["refused_calls"]
    return ServiceFacts(
        name=service.name or service.url,
        url=service.url,
        framework_id=ids[0] if ids else "",
        refused_calls="" if refused is None else str(refused["cause"]),
        failed_calls=tuple(_failed_calls(events)),
        clock_problems=tuple(_clock_problems(events, mesos["clock_drift"])),
        may_still_run=tuple(mesos["may_still_run"]),
        failing_agents=tuple(
            (item["hostname"], tuple(item["failures"]), item["avoided_until"]) for item in mesos["failing_agents"]
        ),
    )


def _since(events: Iterable[Document], kind: str) -> list[Document]:
    """Return the events after the last event of this kind."""
    latest: list[Document] = []
    for event in events:
        latest = [] if event["kind"] == kind else [*latest, event]
    return latest


def _failed_calls(events: Sequence[Document]) -> Iterator[str]:
    for event in _since(events, "Subscribed"):
        if event["kind"] in ("CallRefused", "CallFailed"):
            yield event["message"]


def _clock_problems(events: Sequence[Document], drift: float) -> Iterator[str]:
    if drift:
        side = "behind" if drift > 0 else "ahead of"
        yield f"the scheduler's clock is {format_duration(round(abs(drift)))} {side} the master's"
    for event in _since(events, "SchedulerStarted"):
        if event["kind"] == "ClockStepped" and " set back " in event["message"]:
            yield event["message"].partition(";")[0].replace("this machine", "the scheduler's machine")
