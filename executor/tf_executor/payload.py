"""What the scheduler tells the executor about a task, as JSON in `TaskInfo.data`.

The contract lives with the party that must stay small; `reports` is the way back. Both sides import these two modules,
nothing else is shared. Standard library only, Python 3.8.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Mapping, Sequence

#: Grows when an executor of the version before could not run the payload correctly.
VERSION = 3
#: Of a message to the executor: ask for the secrets that reload now.
RENEW_SECRETS = b"renew secrets"
#: `Liveness.kind`.
LIVENESS_KINDS = ("command", "http", "progress")


class PayloadError(ValueError):
    """The bytes are no payload that this executor understands."""


@dataclass(frozen=True)
class Liveness:
    """How to see that a program that runs does not work any more; then the task fails. Durations in seconds."""

    #: `command`: exit code 0 means alive; `http`: status 200 to 399; `progress`: reports come (`target` is not used).
    kind: str
    #: Shell command line, or URL; `{port}` in it is the task's port.
    target: str = ""
    #: Between two checks.
    interval: float = 10.0
    #: For one check. For `progress`: how long a program may be silent.
    timeout: float = 20.0
    #: After the start, in which failures do not count.
    grace: float = 300.0
    #: How many in a row end the task.
    failures: int = 3


@dataclass(frozen=True)
class Payload:
    """One task, complete: with this and its working directory the executor needs nobody else."""

    #: Name inside the service, such as `worker-0`.
    task: str
    #: Job of the ClusterSpec: chief, worker, ps or evaluator.
    job: str
    #: Position inside the job, from 0.
    index: int
    #: Shell command line of the user's program; runs as `/bin/sh -c` in the task's working directory. May hold
    #: placeholders such as `{task_index}` (`commands.py`). Empty: `job_name` says what runs.
    command: str
    #: Content of TF_CONFIG: {"cluster": {job: [address]}, "task": {"type", "index"}}.
    tf_config: Mapping[str, Any]
    #: Number of the ClusterSpec that `tf_config` comes from.
    generation: int = 0
    #: Added to the program's environment as they are; they win over what the executor sets.
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Names in `environment` whose values must not be shown to anybody.
    secrets: Sequence[str] = ()
    #: Where the executor gets further secrets before anything runs, with what, once (`handover`). Empty: none.
    secrets_url: str = ""
    secrets_token: str = field(default="", repr=False)
    #: Certificates of the authorities to trust there, PEM; empty: the machine's.
    secrets_ca: str = ""
    #: Seconds between two questions whether one of them has changed; 0: none is asked.
    secrets_reload: float = 0.0
    #: Interpreter of the user's program, a path or a name to look up; empty: the one the executor runs under.
    python: str = ""
    #: Seconds between SIGTERM and SIGKILL, so that the program can write a checkpoint.
    kill_grace: float = 10.0
    #: Port of the task's address; 0: it has none.
    port: int = 0
    #: Whether the executor serves Horovod's processes at `port`, where they meet.
    rendezvous: bool = False

    # -- the program of the original package: a module with `main(server, log_dir, context)`

    #: Module that is imported, when there is no `command`.
    job_name: str = ""
    #: Folder for PYTHONPATH, relative to the working directory.
    job_path: str = ""
    #: JSON object, as text.
    job_context: str = "{}"
    #: Where the program shall keep logs and checkpoints; empty: a folder in the working directory.
    log_dir: str = ""
    #: How the program distributes its training: parameter_server, multi_worker_mirrored or between_graph.
    strategy: str = ""
    #: Whether `--ps_hosts --worker_hosts --job_name --task_index` are appended to `command`.
    cluster_flags: bool = False

    # -- what is done around the program

    #: URLs for the working directory that the agent's fetcher cannot fetch (s3, gs, hdfs); archives are extracted.
    fetch: Sequence[str] = ()
    #: Shell command lines before the program and, if it has ended by itself, after it. Empty: none.
    pre: str = ""
    post: str = ""
    #: Seconds that each of fetch, pre and post may take.
    hook_timeout: float = 3600.0

    # -- what it may use

    #: Operating system user, if the executor may choose: an agent that switches users has done so already.
    user: str = ""
    #: Added to the niceness, -20 to 19.
    nice: int = 0
    #: Name as in `ulimit` or setrlimit(2) without RLIMIT_, lower case -> [soft, hard]; -1: unlimited.
    ulimits: Mapping[str, Sequence[int]] = field(default_factory=dict)
    #: GPUs of the task. With 0 the program sees none, also where the agent does not isolate them.
    gpus: int = 0
    #: Indices or UUIDs to use; empty: the executor chooses `gpus` free ones.
    gpu_devices: Sequence[str] = ()
    #: Whether to make sure, before the program starts, that TensorFlow sees all `gpus`.
    gpu_check: bool = True

    # -- what is watched

    #: host:port where the task's TensorFlow server will answer; empty: it has none.
    readiness: str = ""
    liveness: Liveness | None = None
    #: Seconds without progress and output after which the program counts as failed; 0: never.
    stalled_after: float = 0.0
    #: Folders in which TensorBoard event files tell the progress; relative to the working directory.
    event_folders: Sequence[str] = ()
    #: Bytes of each of stdout and stderr before the file is rotated, and how many old ones are kept.
    output_bytes: int = 32 << 20
    output_backups: int = 3

    version: int = VERSION

    def encode(self) -> bytes:
        """As bytes for `TaskInfo.data` (before its base64)."""
        return json.dumps(asdict(self), sort_keys=True).encode()

    @classmethod
    def decode(cls, data: bytes) -> Payload:
        """Raise PayloadError with a sentence when `data` is not a payload of a version that we know."""
        try:
            found: dict[str, Any] = json.loads(data)
            version = found["version"]
        except (ValueError, KeyError, TypeError) as error:
            raise PayloadError(f"the task carries no launch payload: {error!r}") from error
        if version != VERSION:
            raise PayloadError(f"launch payload has version {version}, this executor understands {VERSION}")
        try:
            if found.get("liveness") is not None:
                found["liveness"] = Liveness(**found["liveness"])
            payload = cls(**found)
        except TypeError as error:
            raise PayloadError(f"the launch payload does not fit its version {VERSION}: {error}") from error
        _check(payload)
        return _with_tuples(payload)


_NUMBER = (int, float)
_LIST = (list, tuple)
_LISTS = ("secrets", "fetch", "gpu_devices", "event_folders")
_NAMES = ("task", "job", "command", "secrets_url", "secrets_token", "secrets_ca", "python", "job_name")
_TEXTS = ("job_path", "job_context", "log_dir", "strategy", "pre", "post", "user", "readiness")
_TYPES: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys((*_NAMES, *_TEXTS), (str,)),
    "index": (int,),
    "tf_config": (dict,),
    "generation": (int,),
    "environment": (dict,),
    "secrets": _LIST,
    **dict.fromkeys(("kill_grace", "secrets_reload", "hook_timeout", "stalled_after"), _NUMBER),
    "port": (int,),
    "rendezvous": (bool,),
    "cluster_flags": (bool,),
    "fetch": _LIST,
    "nice": (int,),
    "ulimits": (dict,),
    "gpus": (int,),
    "gpu_devices": _LIST,
    "gpu_check": (bool,),
    "event_folders": _LIST,
    "output_bytes": (int,),
    "output_backups": (int,),
}
_LIVENESS_TYPES: Mapping[str, tuple[type, ...]] = {
    "kind": (str,),
    "target": (str,),
    "interval": _NUMBER,
    "timeout": _NUMBER,
    "grace": _NUMBER,
    "failures": (int,),
}


def _check(payload: Payload) -> None:
    """JSON has types of its own: a wrong one must end in a sentence here, not in a traceback at the spawn."""
    _check_types(payload, _TYPES, "")
    for name in _LISTS:
        _require(all(isinstance(item, str) for item in getattr(payload, name)), name, payload, "a list of texts")
    for name, value in payload.environment.items():
        if not isinstance(value, str):
            raise PayloadError(f"launch payload: environment variable {name} is {value!r}, it must be a string")
    pairs = all(_is_pair(limit) for limit in payload.ulimits.values())
    _require(pairs, "ulimits", payload, "an object of [soft, hard] whole numbers")
    _require(bool(payload.command or payload.job_name), "command", payload, "filled, or job_name must")
    cluster = payload.tf_config.get("cluster", {})
    if not isinstance(cluster, dict):
        raise PayloadError(f"launch payload: tf_config.cluster is {cluster!r}, it must map a job to its addresses")
    if payload.liveness is not None:
        _check_types(payload.liveness, _LIVENESS_TYPES, "liveness.")
        _require(payload.liveness.kind in LIVENESS_KINDS, "liveness.kind", payload, f"one of {LIVENESS_KINDS}")


def _check_types(whole: object, table: Mapping[str, tuple[type, ...]], prefix: str) -> None:
    for name, types in table.items():
        value = getattr(whole, name)
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise PayloadError(f"launch payload: {prefix}{name} is {value!r}, it must be of type {types[0].__name__}")


def _require(holds: bool, name: str, payload: Payload, expected: str) -> None:
    if not holds:
        value: Any = payload
        for part in name.split("."):
            value = getattr(value, part)
        raise PayloadError(f"launch payload: {name} is {value!r}, it must be {expected}")


def _is_pair(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == 2 and all(type(item) is int for item in value)


def _with_tuples(payload: Payload) -> Payload:
    """JSON has lists only; what was encoded and what was decoded shall be equal."""
    changes: dict[str, Any] = {name: tuple(getattr(payload, name)) for name in _LISTS}
    return replace(payload, ulimits={name: tuple(pair) for name, pair in payload.ulimits.items()}, **changes)
