"""Facts about a cluster, a service and this machine, for the checks of `doctor`.

A fact that could not be gathered is Unknown, with the reason. Times are in seconds or in the unit that they name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tf_scheduler.model.secrets import RunningTask


@dataclass(frozen=True, slots=True)
class Unknown:
    """A fact that could not be gathered."""

    reason: str


@dataclass(frozen=True, slots=True)
class FrameworkFacts:
    """A framework that the master has not removed."""

    id: str
    name: str
    webui_url: str


@dataclass(frozen=True, slots=True)
class MasterFacts:
    """Answer of the leading master. `clock_offset`: seconds ahead of this machine."""

    url: str
    clock_offset: float | None
    frameworks: tuple[FrameworkFacts, ...]
    running: frozenset[RunningTask] = frozenset()


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """An agent with its flags. `runs_as_root`: None if unknown."""

    id: str
    hostname: str
    flags: Mapping[str, str] | Unknown
    clock_offset: float | None = None
    runs_as_root: bool | None = None


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """State store. `is_open`: None if ZooKeeper has no node of the service yet."""

    address: str
    is_open: bool | None
    has_credentials: bool = False


@dataclass(frozen=True, slots=True)
class ApiFacts:
    """Answer of the API to a write without a token, for a plan that does not exist.

    `from_master`: the write was sent from the master's machine, from which Admin Router also sends requests.
    """

    url: str
    status: int
    from_master: bool = False


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """Certificate of a server, or why it could not be verified."""

    url: str
    days_left: float = 0.0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """Facts that only the scheduler has."""

    name: str
    url: str
    framework_id: str
    #: Cause of the calls that Mesos refuses now; empty if it accepts them.
    refused_calls: str
    #: Messages about failed calls since the subscription.
    failed_calls: tuple[str, ...]
    #: Messages about clocks that differ, or were set back since the scheduler's start.
    clock_problems: tuple[str, ...]
    may_still_run: tuple[str, ...]
    #: Agents on which launches failed: host name, times of failures, end of the avoidance.
    failing_agents: tuple[tuple[str, tuple[float, ...], float], ...]


@dataclass(frozen=True, slots=True)
class ArtefactFacts:
    """A file that the options name. `is_checked`: this machine can request the URL."""

    option: str
    url: str
    problem: str = ""
    is_checked: bool = True


@dataclass(frozen=True, slots=True)
class LaptopFacts:
    """Facts about this machine."""

    python: tuple[int, int]
    #: Interpreters of the options that do not exist on this machine.
    missing_programs: tuple[str, ...]
    missing_libraries: tuple[str, ...]
    #: Why no local cluster can run; empty if one can.
    no_local_mesos: str
    #: Folder -> free bytes.
    free: Mapping[str, int]
    #: Available bytes; None: unknown.
    memory: int | None
    #: `this Python` or runtime -> package -> version, of TensorFlow and Keras.
    trainings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    #: Lines of `nvidia-smi -L`, one for each GPU.
    gpus: tuple[str, ...] = ()
    #: Default ports of `local up` that another program uses, with its name if known.
    taken_ports: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts; `now` is a Unix time."""

    now: float
    #: Options with all defaults.
    options: Mapping[str, Any] | Unknown
    laptop: LaptopFacts | Unknown
    master: MasterFacts | Unknown
    agents: tuple[AgentFacts, ...] | Unknown
    store: StoreFacts | Unknown
    api: ApiFacts | Unknown
    certificates: tuple[CertificateFacts, ...]
    service: ServiceFacts | Unknown
    artefacts: tuple[ArtefactFacts, ...] | Unknown

    @property
    def own_id(self) -> str:
        """Return the id of the service's framework; empty if unknown."""
        return "" if isinstance(self.service, Unknown) else self.service.framework_id

    @property
    def has_secrets(self) -> bool:
        """Return whether tasks get secrets, according to the options."""
        if isinstance(self.options, Unknown):
            return False
        service = self.options["service"]
        key = service["gcs_key"] or service["use_gcs_key_secret"] or service["security"]["kerberos"]["enabled"]
        return bool(self.options["secrets"] or key)
