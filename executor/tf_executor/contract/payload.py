"""Launch payload and messages from the scheduler to the executor, as JSON.

The payload is in `TaskInfo.data`; its `settings` hold values of the job's options. Standard library only, Python 3.8.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Mapping, Sequence, Union

from .settings import LIVENESS_KINDS, Liveness, RunSettings
from .strategies import Strategy, strategies_with

#: Incremented when an older executor could not run the payload correctly. Executors ignore unknown fields.
VERSION = 6
#: Message to the executor: fetch the reloadable secrets now.
RENEW_SECRETS = b"renew secrets"
#: Prefix of a message with an `ExecRequest`.
EXEC = b"exec "
#: Variable with the folder or URL for checkpoints.
CHECKPOINT_DIR = "CHECKPOINT_DIR"
#: Variables of the scheduler: host:port of the task; number of workers that the job may have while it runs (servers
#: need as many threads); address of the tf.data service, as its `distribute` expects it, and its dispatcher's journal.
TASK_ADDRESS, MAX_WORKERS = "TASK_ADDRESS", "MAX_WORKERS"
DATA_SERVICE, JOURNAL = "DATA_SERVICE_ADDRESS", "DATA_SERVICE_JOURNAL"
#: Start of the message that tells a chief's executor the wanted workers; JSON follows.
MEMBERS = b"members "
#: Folder in the sandbox with the results of commands; an executor that accepts commands creates it.
EXEC_FOLDER = ".exec"
#: Maximum bytes of a command in JSON, and maximum seconds that it may take.
MAX_EXEC_BYTES, MAX_EXEC_TIMEOUT = 1 << 15, 3600
#: Seconds between two progress messages, unless the service is very large; usage is sent with every fifth of them.
MESSAGE_INTERVAL, USAGE_EVERY = 2.0, 5
_EXEC_ID = "[0-9a-f]{32}"
_MIRRORED = strategies_with(lambda traits: traits.is_mirrored)


class PayloadError(ValueError):
    """The bytes are not a payload of this version, or no message for this launch."""


@dataclass(frozen=True)
class Payload:
    """Everything that the executor needs to run one task."""

    #: Name in the service, such as `worker-0`.
    task: str
    #: Kind of the task, such as worker, ps or tensorboard.
    job: str
    #: Index in the job, from 0.
    index: int
    #: Shell command line of the user's program, run as `/bin/sh -c` in the sandbox. May hold placeholders such as
    #: `{task_index}` (`environment.placeholders`). Empty: run `job_name`.
    command: str
    #: Content of TF_CONFIG: {"cluster": {job: [address]}, "task": {"type", "index"}}.
    tf_config: Mapping[str, Any]
    #: Generation of the ClusterSpec in `tf_config`.
    generation: int = 0
    #: Name of the service; empty: launches are not compared (`launch.fencing`).
    service: str = ""
    #: Serial number and Unix time of the launch, by the scheduler's state and clock.
    serial: int = 0
    launched_at: float = 0.0
    #: Added to the program's environment; overrides the executor's variables.
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Names in `environment` whose values must not be shown.
    secrets: Sequence[str] = ()
    #: URL and one-time token to fetch further secrets with; empty: none.
    secrets_url: str = ""
    secrets_token: str = field(default="", repr=False)
    #: PEM certificates of the authorities for `secrets_url`; empty: the system's.
    secrets_ca: str = ""
    #: Seconds between two fetches of reloadable secrets; 0: never.
    secrets_reload: float = 0.0
    #: Limits, hooks, checks and output.
    settings: RunSettings = field(default_factory=RunSettings)
    #: Port of the task's address; 0: none.
    port: int = 0
    #: Further ports.
    more_ports: Sequence[int] = ()
    #: Key of `WantedMembers` for this chief; empty: its workers are fixed.
    members_key: str = field(default="", repr=False)
    #: Whether the executor runs Horovod's rendezvous server at `port`.
    rendezvous: bool = False
    #: Hosts of the ClusterSpec that it serves; empty: all.
    rendezvous_hosts: Sequence[str] = ()

    # -- jobs of the original package: a module with `main(server, log_dir, context)`

    #: Module to import, instead of `command`.
    job_name: str = ""
    #: Folder for PYTHONPATH, relative to the sandbox.
    job_path: str = ""
    #: JSON object as text.
    job_context: str = "{}"
    #: Folder or URL for logs and checkpoints; empty: a folder in the sandbox.
    log_dir: str = ""
    #: Value of a `Strategy`.
    strategy: str = ""

    #: How a URL in CHECKPOINT_DIR is carried (`user.storage`): url, mode, role, every, keep, options and, for
    #: peers, `writer`, the launch that stores checkpoints; empty: it is not.
    storage: Mapping[str, Any] = field(default_factory=dict)

    #: Maximum bytes of new files that all tasks keep in CHECKPOINT_DIR (`user.keep`); 0: none. The leader comes first.
    keep_files: int = 0
    is_leader: bool = False

    # -- other stages

    #: URLs to fetch into the sandbox that the agent's fetcher cannot (s3, gs, hdfs); archives are extracted.
    fetch: Sequence[str] = ()
    #: Path in the sandbox -> absolute path of a file or folder of the agent; linked before archives are extracted.
    links: Mapping[str, str] = field(default_factory=dict)
    #: Names of files that the agent has fetched into the sandbox: archives among them are extracted, in this order.
    unpack: Sequence[str] = ()
    #: SHA-256 digest in lower-case hex by name of a fetched file, checked before anything is extracted.
    digests: Mapping[str, str] = field(default_factory=dict)

    # -- resources

    #: Operating system user, if the executor runs as root.
    user: str = ""
    #: Memory in MB of 2^20 bytes above which the executor kills the program; 0: unlimited.
    memory_limit: int = 0
    #: Number of GPUs; with 0 the program sees none, even if the agent does not isolate them.
    gpus: int = 0
    #: Indices or UUIDs of GPUs to use; empty: the executor chooses free ones.
    gpu_devices: Sequence[str] = ()

    # -- monitoring

    #: host:port of the task's TensorFlow server; empty: none.
    readiness: str = ""
    #: Seconds between two progress messages.
    message_interval: float = MESSAGE_INTERVAL
    #: Folders with TensorBoard event files to read progress from, relative to the sandbox.
    event_folders: Sequence[str] = ()

    #: Key of `ExecRequest`; empty: this launch runs no commands of users.
    exec_key: str = field(default="", repr=False)

    version: int = VERSION

    @property
    def fenced_folder(self) -> str:
        """Path in CHECKPOINT_DIR that `launch.fencing` protects; empty if none."""
        folder = self.environment.get(CHECKPOINT_DIR, "")
        return folder if self.service and folder.startswith("/") else ""

    @property
    def is_mirrored(self) -> bool:
        """Whether Keras may train several replicas of a model, in this task or in several."""
        addresses = self.tf_config.get("cluster", {})
        replicas = sum(len(addresses.get(job, ())) for job in ("chief", "worker"))
        return self.gpus > 1 or (self.strategy in _MIRRORED and replicas > 1)

    @property
    def peer_ports(self) -> frozenset[int]:
        """Ports of all tasks of the cluster, or of the first one if it has no servers."""
        lists = [_host_list(addresses).split(",") for addresses in self.tf_config.get("cluster", {}).values()]
        lists.append([self.environment.get("MASTER_PORT", "")])
        ports = [address.rpartition(":")[2] for addresses in lists for address in addresses]
        return frozenset(int(port) for port in ports if port.isdigit())

    def cluster_variables(self) -> dict[str, str]:
        """Return the variables that describe the task and its cluster."""
        cluster: Mapping[str, Any] = self.tf_config.get("cluster", {})
        ports = (self.port, *self.more_ports) if self.more_ports else ()
        return {
            "TF_CONFIG": json.dumps(self.tf_config),
            "CLUSTER_SPEC": json.dumps(cluster),
            "JOB_NAME": self.job,
            "TASK_INDEX": str(self.index),
            "TASK_NAME": self.task,
            **{f"{job.upper()}_HOSTS": _host_list(cluster.get(job, ())) for job in ("ps", "worker")},
            **({"TASK_PORT": str(self.port)} if self.port else {}),
            **{f"PORT{number}": str(port) for number, port in enumerate(ports)},
        }

    def encode(self, cluster: str = "") -> bytes:
        """Return the bytes for `TaskInfo.data` (before base64).

        `cluster`: the cluster in `tf_config` as JSON, if the caller encodes it once for thousands of tasks.
        """
        # Not `asdict(self)`, which copies each of thousands of addresses.
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        if not cluster:
            return json.dumps(values, default=asdict, sort_keys=True).encode()
        task = json.dumps(values.pop("tf_config")["task"], sort_keys=True)
        text = json.dumps(values, default=asdict, sort_keys=True)
        return f'{text[:-1]}, "tf_config": {{"cluster": {cluster}, "task": {task}}}}}'.encode()

    @classmethod
    def decode(cls, data: bytes) -> Payload:
        """Decode a payload. Raises PayloadError if it is invalid or of another version."""
        try:
            values: dict[str, Any] = json.loads(data)
            version = values["version"]
        except (ValueError, KeyError, TypeError) as error:
            raise PayloadError(f"invalid launch payload: not a JSON object with a version: {error!r}") from error
        if version != VERSION:
            raise PayloadError(
                f"launch payload version `{version}` is not supported: this executor requires {VERSION}; "
                "use the executor of the scheduler's release (executor.url)"
            )
        try:
            settings = _known(RunSettings, values.get("settings", {}))
            if settings.get("liveness") is not None:
                settings["liveness"] = Liveness(**_known(Liveness, settings["liveness"]))
            payload = cls(**{**_known(Payload, values), "settings": RunSettings(**settings)})
        except TypeError as error:
            raise PayloadError(f"launch payload does not match version {version}: {error}") from error
        _check(payload)
        # Tuples instead of lists, so that a decoded payload equals the encoded one.
        changes: dict[str, Any] = {name: tuple(getattr(payload, name)) for name in _LISTS}
        ulimits = {name: tuple(pair) for name, pair in payload.settings.ulimits.items()}
        return replace(payload, settings=replace(payload.settings, ulimits=ulimits), **changes)


#: What sets the variables that are not in `Payload.cluster_variables` -> their names.
_SETTERS = {
    "service.checkpoint_dir": (CHECKPOINT_DIR, "LOG_DIR"),
    "the scheduler": (TASK_ADDRESS, MAX_WORKERS, DATA_SERVICE, JOURNAL),
    "the executor": ("DISTRIBUTION_STRATEGY", "JOB_MODULE", "JOB_CONTEXT", "SANDBOX"),
}


def setter_of(name: str, strategy: Strategy) -> str:
    """Return what sets a variable for each task, so that options must not; or empty."""
    sample = Payload("", "", 0, "", {}, port=1, more_ports=range(1, 10))
    if name in strategy.traits.rank_variables and strategy.traits.rank_variables[name] != "{processes}":
        return f"strategy {strategy.value}"
    if name in sample.cluster_variables():
        return "the scheduler"
    setter = next((setter for setter, names in _SETTERS.items() if name in names), "")
    return "the executor" if name.startswith("TF_EXECUTOR_") else setter


def _host_list(addresses: Any) -> str:
    """Join a job's addresses with commas; {index: address} if indices are missing."""
    if isinstance(addresses, dict):
        addresses = [addresses[index] for index in sorted(addresses, key=int)]
    return ",".join(addresses)


@dataclass(frozen=True)
class ExecRequest:
    """A command to run in a task.

    Agents deliver messages of any sender to executors. So an executor accepts a message only if its code was made with
    the launch's key.
    """

    #: Name of its result in EXEC_FOLDER, 32 hex digits; a repeated id is a replay.
    id: str
    #: Mesos id of the launch.
    task_id: str
    #: Program and arguments.
    command: Sequence[str]
    #: Seconds after which its processes are killed.
    timeout: float

    def encode(self, key: str) -> bytes:
        """Return a message (before base64): EXEC, code, space, canonical JSON."""
        return _signed(EXEC, key, asdict(self))

    @classmethod
    def decode(cls, data: bytes, key: str, task_id: str) -> ExecRequest:
        """Decode a message for this launch. Raises PayloadError, which quotes no data."""
        request = cls(**_opened(EXEC, key, data))
        if request.task_id != task_id or not re.fullmatch(_EXEC_ID, request.id):
            raise PayloadError("the message is for another launch, or has an invalid id")
        return request


@dataclass(frozen=True)
class WantedMembers:
    """Workers that a chief shall use (`user.members`), authenticated as ExecRequest."""

    #: Mesos id of the chief's launch.
    task_id: str
    #: Increases with each list of the launch.
    version: int
    #: Index, as text -> address.
    workers: Mapping[str, str]

    def encode(self, key: str) -> bytes:
        """Return the bytes of a message (before base64)."""
        return _signed(MEMBERS, key, asdict(self))

    @classmethod
    def decode(cls, data: bytes, key: str, task_id: str) -> WantedMembers:
        """Decode a message for this launch. Raises PayloadError, which quotes no data."""
        wanted = cls(**_opened(MEMBERS, key, data))
        if wanted.task_id != task_id:
            raise PayloadError("the message is for another launch")
        return wanted


def _signed(kind: bytes, key: str, values: Mapping[str, Any]) -> bytes:
    body = json.dumps(values, sort_keys=True, separators=(",", ":")).encode()
    return kind + _code(kind, key, body) + b" " + body


def _opened(kind: bytes, key: str, data: bytes) -> dict[str, Any]:
    """Return a message's content; parse it only if the authentication code is right."""
    code, _, body = data[len(kind) :].partition(b" ")
    if not key or not hmac.compare_digest(code, _code(kind, key, body)):
        raise PayloadError("the message is not from the scheduler: its code is wrong")
    values: dict[str, Any] = json.loads(body)
    return values


def _code(kind: bytes, key: str, body: bytes) -> bytes:
    return hmac.new(key.encode(), kind + body, hashlib.sha256).hexdigest().encode()


_Part = Union[Payload, RunSettings, Liveness]


def _known(whole: type[_Part], values: Any) -> dict[str, Any]:
    """Return the values of known fields; a newer scheduler may send more.

    Raises TypeError if `values` is not an object.
    """
    if not isinstance(values, dict):
        raise TypeError(f"expected an object, not {values!r}")
    return {item.name: values[item.name] for item in fields(whole) if item.name in values}


#: Types of a value in JSON, by the begin of the field's annotation.
_TYPES: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "Mapping": (dict,),
    "Sequence": (list, tuple),
}


_LISTS = {item.name: item.type for item in fields(Payload) if str(item.type).startswith("Sequence")}


def _check(payload: Payload) -> None:
    """Check all field types, so that errors appear before the program starts."""
    settings, liveness = payload.settings, payload.settings.liveness
    _check_types(payload, "")
    _check_types(settings, "settings.")
    for name, kind in _LISTS.items():
        element, noun = (str, "strings") if kind == "Sequence[str]" else (int, "integers")
        _require(all(type(item) is element for item in getattr(payload, name)), name, payload, f"a list of {noun}")
    for name, value in payload.environment.items():
        if not isinstance(value, str):
            raise PayloadError(f"launch payload: environment variable {name} is {value!r}, expected a string")
    pairs = all(_is_pair(limit) for limit in settings.ulimits.values())
    _require(pairs, "settings.ulimits", payload, "an object whose values are lists of two integers, [soft, hard]")
    _require(bool(payload.command or payload.job_name), "command", payload, "a command or a job_name")
    cluster = payload.tf_config.get("cluster", {})
    if not isinstance(cluster, dict):
        raise PayloadError(f"launch payload: tf_config.cluster is {cluster!r}, expected an object keyed by job")
    if liveness is not None:
        _check_types(liveness, "settings.liveness.")
        _require(liveness.kind in LIVENESS_KINDS, "settings.liveness.kind", payload, f"one of {LIVENESS_KINDS}")


def _check_types(whole: _Part, prefix: str) -> None:
    for item in fields(whole):
        types, value = _TYPES.get(str(item.type).partition("[")[0]), getattr(whole, item.name)
        if types and (not isinstance(value, types) or (isinstance(value, bool) and bool not in types)):
            raise PayloadError(f"launch payload: {prefix}{item.name} is {value!r}, expected type {types[0].__name__}")


def _require(holds: bool, name: str, payload: Payload, expected: str) -> None:
    if not holds:
        value: Any = payload
        for part in name.split("."):
            value = getattr(value, part)
        raise PayloadError(f"launch payload: {name} is {value!r}, expected {expected}")


def _is_pair(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == 2 and all(type(item) is int for item in value)
