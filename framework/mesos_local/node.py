"""Start and stop nodes of a local cluster; make their commands, flags, helpers."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from ctypes.util import find_library
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from tf_executor.contract.http import HttpClient, NoReplyError

from .agents import AgentSpec, count_gpus
from .host import MARK, MesosLocalError, NodeDiedError, PortClaims, ProcessId, spawn, uninterrupted
from .network import PLUGINS, cgroups_root

_LOG_LINES = 15
_GRACE = 5.0  # seconds
_POLL_INTERVAL = 0.02  # seconds between attempts to connect
_START_TIMEOUT = 30.0  # seconds


@dataclass(eq=False)
class Node:
    """Master, agent or ZooKeeper. A restart keeps `address` ("IP:PORT") and work dir.

    `command` is called at each start, `changed` after each start and stop. `claims` last until the process exits.
    """

    name: str
    address: str
    log_path: Path
    command: Callable[[], Sequence[str]]
    environment: Mapping[str, str]
    changed: Callable[[], None]
    claims: PortClaims = field(default_factory=PortClaims)
    started_at: float = 0.0
    process: ProcessId | None = None

    @property
    def pid(self) -> int:
        """Process id. Raises MesosLocalError if it is not running."""
        return self._running().pid

    def start(self) -> None:
        """Start the node; wait until it is ready. See LocalCluster.wait_registered()."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start the node, do not wait. Raises MesosLocalError if it is already running."""
        if self.process is not None and self.process.alive():
            raise MesosLocalError(f"{self.name} is already running (process {self.process.pid})")
        self.started_at = time.time()
        self.process = spawn(self.command(), self.environment, self.log_path, self.claims.descriptors)
        self.changed()

    def ready(self) -> bool:
        return is_listening(self.address)

    def wait_ready(self) -> None:
        """Wait until ready. On exit or timeout raises MesosLocalError with the log's end."""
        deadline = time.monotonic() + _START_TIMEOUT
        while not self.ready():
            if self._running().wait(_POLL_INTERVAL):
                raise self.failed("did not start")
            if time.monotonic() > deadline:
                raise self.failed(f"does not answer at {self.address} after {_START_TIMEOUT:.0f} s")

    def stop(self) -> None:
        """Send SIGTERM, which ends Mesos immediately; executors of an agent keep running."""
        if self.process is not None:
            self.process.end(_GRACE)
            self.process = None
            self.changed()

    def kill(self) -> None:
        if self.process is not None:
            self.process.signal(signal.SIGKILL)
        self.stop()

    def restart(self) -> None:
        """Stop and start again, with the same work dir and address."""
        self.stop()
        self.start()

    def check_alive(self) -> None:
        """Raise NodeDiedError if the node exited unexpectedly."""
        if self.process is not None and not self.process.alive():
            cause = self.process.how_it_ended() or "its log may show the reason"
            raise NodeDiedError(f"{self.name} has exited: {cause}{self._end_of_log()}")

    def failed(self, what: str) -> MesosLocalError:
        """Return an error whose message ends with the last lines of the log."""
        return MesosLocalError(f"{self.name} {what}{self._end_of_log()}")

    def _end_of_log(self) -> str:
        """Return the last log lines, or an empty string."""
        with suppress(OSError):
            lines = self.log_path.read_text(errors="replace").splitlines()[-_LOG_LINES:]
            return "\n  ".join([f"\nlast lines of {self.log_path}:", *lines])
        return ""

    def _running(self) -> ProcessId:
        if self.process is None:
            raise MesosLocalError(f"{self.name} is not running")
        return self.process


class MesosNode(Node):
    """A master or an agent."""

    def ready(self) -> bool:
        # The relay of a cluster with containers accepts connections before the node does.
        with suppress(NoReplyError):
            HttpClient(2 * _ANSWER_TIMEOUT, _ANSWER_TIMEOUT).fetch(f"http://{self.address}/health", method="HEAD")
            return True
        return False


class AgentNode(MesosNode):
    """An agent."""

    registered_id: str | None = None

    @property
    def agent_id(self) -> str:
        """Agent id assigned by the master. Raises MesosLocalError before registration."""
        if self.registered_id is None:
            raise MesosLocalError(f"{self.name} has not registered yet")
        return self.registered_id


def is_listening(address: str) -> bool:
    """Whether a process accepts connections at "IP:PORT"."""
    host, _, port = address.rpartition(":")
    with socket.socket() as connection:
        return connection.connect_ex((host, int(port))) == 0


#: Folder of the jars of Debian's package `zookeeper`.
JARS = Path("/usr/share/java")
_MISSING = "files of a local ZooKeeper are missing: {}; on Debian: apt-get install zookeeper default-jre-headless"
# The server and what it loads; slf4j-simple logs to standard error.
_NETTY = (
    *("handler", "common", "buffer", "transport", "codec", "resolver"),
    *("transport-native-epoll", "transport-native-unix-common"),  # required by TLS
)
_CLASS_PATH = (
    *("zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-simple", "metrics-core", "snappy-java"),
    *(f"netty-{part}" for part in _NETTY),
)
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
# Small and quick to start; preAllocSize in KB, by default 64 MB.
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Dzookeeper.preAllocSize=1024")
# A local cluster's data need not survive a power cut.
_NO_SYNC = "-Dzookeeper.forceSync=no"

_CONFIGURATION = """\
clientPort={port}
clientPortAddress={host}
dataDir={data}
tickTime=500
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=ruok,srvr
"""


_ANSWER_TIMEOUT = 5.0  # seconds
#: In the locale C, Java cannot open files with non-ASCII names.
ZOOKEEPER_ENVIRONMENT = {"LC_ALL": "C.UTF-8"}


class ZooKeeperNode(Node):
    """A ZooKeeper server, standalone or in an ensemble."""

    def mode(self) -> str | None:
        """Return `standalone`, `leader` or `follower`; None while it does not serve."""
        try:
            lines = four_letter_word(self.address, "srvr").splitlines()
        except OSError:
            return None
        return next((line.removeprefix("Mode: ") for line in lines if line.startswith("Mode: ")), None)

    def ready(self) -> bool:
        return self.mode() is not None


def four_letter_word(address: str, word: str) -> str:
    """Send `srvr` or `ruok` to ZooKeeper; return the answer. Raises OSError."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=_ANSWER_TIMEOUT) as connection:
        connection.sendall(word.encode())
        with connection.makefile() as answer:
            return answer.read()


def zookeeper_command(folder: Path, address: str, jars: Path = JARS, settings: Iterable[str] = ()) -> list[str]:
    """Write a ZooKeeper server's configuration into `folder`; return its command.

    `settings`: further lines of zoo.cfg. With tickTime 500 ms, sessions time out after 1 s to 10 s. Raises
    MesosLocalError naming Debian's packages if Java or a jar is missing.
    """
    java = shutil.which("java")
    paths = [jars / f"{name}.jar" for name in _CLASS_PATH]
    missing = ([] if java else ["java"]) + [str(path) for path in paths if not path.exists()]
    if java is None or missing:
        raise MesosLocalError(_MISSING.format(", ".join(missing)))
    host, _, port = address.rpartition(":")
    data, configuration = folder / "data", folder / "zoo.cfg"
    data.mkdir(parents=True, exist_ok=True)
    lines = (_CONFIGURATION.format(host=host, port=port, data=data), *(f"{line}\n" for line in settings))
    configuration.write_bytes(_property_text("".join(lines)))
    return [java, *_JVM, _NO_SYNC, "-cp", ":".join(map(str, paths)), _MAIN, str(configuration)]


def _property_text(text: str) -> bytes:
    """Encode text for java.util.Properties.load (Latin-1 with backslash escapes)."""
    units = text.replace("\\", "\\\\").encode("utf-16-be")
    codes = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return b"".join(b"%c" % code if code < 128 else b"\\u%04x" % code for code in codes)


# Isolated from PYTHON* variables and from the current folder, which may be a sandbox; without site-packages, because
# nodes and helpers need only the standard library, and helpers must start fast.
_RUN = "import sys; sys.path[:0] = {!r}; from mesos_local.helper_main import main; sys.exit(main())"

AGENT_DEFAULTS = {
    "isolation": "posix/cpu,posix/mem,environment_secret",
    "launcher": "posix",
    "registration_backoff_factor": "50ms",  # the default delays registration by up to a second
    "switch_user": "true" if os.geteuid() == 0 else "false",  # only root may run tasks as another user
    "systemd_enable_support": "false",
}


def node_command(*arguments: str) -> list[str]:
    """Return the command that runs helper_main in an isolated interpreter."""
    return [sys.executable, "-I", "-S", "-c", _RUN.format(_package_folders()), *arguments]


def _package_folders() -> list[str]:
    """Return the folders from which helpers import this package and tf_executor."""
    executor = importlib.util.find_spec("tf_executor")
    assert executor is not None, "tf_executor is installed with this package"
    modules = (Path(__file__), Path(str(executor.origin)))
    return list(dict.fromkeys(str(path.resolve().parent.parent) for path in modules))


def environment(directory: Path, address: str = "", flags: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a node, without the user's Mesos settings."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MESOS_", "LIBPROCESS_", "GLOG_"))}
    own[MARK] = str(directory)
    if address:
        own["LIBPROCESS_IP"], _, own["LIBPROCESS_PORT"] = address.rpartition(":")
    return own | {f"MESOS_{name.upper()}": value for name, value in (flags or {}).items()}


def normal_flags(flags: Mapping[str, object] | None) -> dict[str, str]:
    """Return flags with underscores in names and Mesos' values: True becomes "true"."""
    return {
        name.lstrip("-").replace("-", "_"): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in (flags or {}).items()
    }


#: Isolators of agents with containers (Mesos: docs/mesos-containerizer.md).
_ISOLATION = (
    *("filesystem/linux", "docker/runtime", "cgroups/cpu", "cgroups/mem", "namespaces/pid", "namespaces/ipc"),
    *("network/cni", "volume/host_path", "volume/sandbox_path", "environment_secret"),
)


def has_gpu_isolation() -> bool:
    """Whether agents can isolate GPUs for containers (Mesos: docs/gpu-support.md)."""
    return bool(find_library("nvidia-ml")) and Path("/sys/fs/cgroup/devices/cgroup.procs").exists()


def assign_gpus(specs: Sequence[AgentSpec]) -> dict[str, str]:
    """Return hostname -> GPU numbers such as "0,1"; empty if GPUs are only counted."""
    counts = [int(spec.resource_pairs().get("gpus", "0")) for spec in specs]
    if not 0 < count_gpus() >= sum(counts) or not has_gpu_isolation():
        return {}
    numbers = map(str, range(sum(counts)))
    return {spec.hostname: ",".join(islice(numbers, count)) for spec, count in zip(specs, counts, strict=True)}


def container_flags(directory: Path, agent: str, images: Path, gpus: str | None = None) -> dict[str, str]:
    """Return the additional flags of an agent that runs tasks in containers.

    `images`: folder of archives. `gpus`: see `assign_gpus`; None: containers may open all devices.
    """
    folder = agent_directory(directory, agent)
    devices = () if gpus is None else ("cgroups/devices", "gpu/nvidia") if gpus else ("cgroups/devices",)
    return {
        "isolation": ",".join((*_ISOLATION, *devices)),
        **({"nvidia_gpu_devices": gpus} if gpus else {}),
        "launcher": "linux",
        "cgroups_root": f"{cgroups_root(directory)}/{agent}",
        "runtime_dir": str(folder / "runtime"),
        "image_providers": "docker",
        "image_provisioner_backend": "overlay",
        "docker_registry": str(images),
        "docker_store_dir": str(layers_folder(directory, agent)),
        "network_cni_config_dir": str(folder / "cni"),
        "network_cni_plugins_dir": str(PLUGINS),
        "network_cni_root_dir_persist": "true",  # the default is one folder for all agents of a machine
        "disallow_sharing_agent_ipc_namespace": "true",
    }


def layers_folder(directory: Path, agent: str) -> Path:
    """Return the folder of an agent's unpacked images, which outlive the cluster."""
    return directory / "layers" / agent


def agent_flags(directory: Path, launcher_dir: Path, spec: AgentSpec, flags: Mapping[str, str]) -> dict[str, str]:
    """Return an agent's flags; `flags` override defaults, not the cluster's settings."""
    folder = agent_directory(directory, spec.hostname)
    fixed = {
        "work_dir": str(folder),
        # The default is one folder for all agents of a machine, which each clears when it starts.
        "fetcher_cache_dir": str(folder / "fetch"),
        "launcher_dir": str(launcher_dir),
        "hostname": spec.hostname,
        "resources": _pairs_flag(spec.resource_pairs()),
        "registry": "in_memory",  # of the idle master in the agent's process, see launch.py
    }
    attributes = {"attributes": _pairs_flag(spec.attribute_pairs())} if spec.attributes else {}
    stores = {f"{kind}_store_dir": str(folder / kind) for kind in ("appc", "docker")}
    return AGENT_DEFAULTS | _authentication(directory) | stores | dict(flags) | attributes | fixed


#: File with the key of the agents' tokens for executors.
_KEY = "executor-key"


def write_executor_key(directory: Path) -> None:
    """Write a new key, which only its owner may read, for the tokens of executors."""
    with open(directory / _KEY, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        os.fchmod(file.fileno(), 0o600)  # of a file of an earlier cluster
        file.write(secrets.token_hex(32))


_ANY = {"type": "ANY"}
#: What clients of any node may do (Mesos: docs/authorization.md): schedulers run tasks, and read their files and state.
_PERMITTED: Mapping[str, Mapping[str, object]] = {
    **{f"view_{kind}": {"users": _ANY} for kind in ("frameworks", "tasks", "executors", "containers")},
    "run_tasks": {"users": _ANY},
    "access_sandboxes": {"users": _ANY},
    "view_roles": {"roles": _ANY},
    "view_flags": {"flags": _ANY},
    "get_endpoints": {"paths": {"values": ["/containers", "/metrics/snapshot", "/monitor/statistics"]}},
}
#: What clients of the master may do besides. Maintenance would let a page of any web site stop all agents.
_PERMITTED_BY_MASTER: Mapping[str, Mapping[str, object]] = {
    "register_agents": {"agents": _ANY},
    "register_frameworks": {"roles": _ANY},
    "teardown_frameworks": {"framework_principals": _ANY},
}


def master_acls() -> str:
    """Return the flag `acls` of the master, which refuses all other calls."""
    return _acls({**_PERMITTED, **_PERMITTED_BY_MASTER})


def _acls(permitted: Mapping[str, Mapping[str, object]]) -> str:
    rows = {name: [{"principals": _ANY, **allowed}] for name, allowed in permitted.items()}
    return json.dumps({"permissive": False, **rows})


def _authentication(directory: Path) -> dict[str, str]:
    """Return flags against processes that pose as executor, or change containers.

    A login for all calls would need a key of the idle master in the agent's process, which reads the flags, too.
    """
    return {
        "authenticate_http_executors": "true",
        "http_authenticators": "jwt",
        "jwt_secret_key": str(directory / _KEY),
        "acls": _acls(_PERMITTED),
    }


def _pairs_flag(pairs: Mapping[str, str]) -> str:
    return ";".join(f"{name}:{value}" for name, value in pairs.items())


def agent_directory(directory: Path, hostname: str) -> Path:
    """Return an agent's folder, below which libmesos' work dir is `agents/0/work`."""
    return directory / "agents" / hostname


# --- helper programs, in a folder whose path needs no quotes in `sh -c`

_FOLDER = "libexec"
_PREFIX = "dcos-tensorflow-"
_FETCHER, _CONTAINERIZER = "mesos-fetcher", "mesos-containerizer"
_SAFE_PATH = re.compile(r"[A-Za-z0-9/_.,:+@%-]+")  # needs no quotes in a shell


def helper_folder(directory: Path) -> Path:
    """Return the folder with the helpers of the cluster in `directory`."""
    return (directory / _FOLDER).resolve()


def write_helpers(directory: Path, library: Path) -> None:
    """Write the helpers to `directory/libexec`, or to a private folder linked there.

    A private folder is used if the path needs quotes or is mounted noexec. Raises MesosLocalError if no folder fits.
    """
    remove_helpers(directory)
    with uninterrupted():  # between the private folder and the link to it
        for folder in _candidate_folders(directory):
            _write(folder, _CONTAINERIZER, node_command("containerizer", str(library)))
            _write(folder, _FETCHER, node_command("fetcher"))
            if os.access(folder / _FETCHER, os.X_OK):  # false on a noexec mount
                if folder != directory / _FOLDER:
                    (directory / _FOLDER).symlink_to(folder)
                return
            _remove(folder)
    raise MesosLocalError(
        f"no usable folder for the programs that Mesos runs; tried: {directory}, $XDG_RUNTIME_DIR, /tmp and /var/tmp. "
        "The path must not contain spaces or quotes, and the folder must not be mounted noexec"
    )


def remove_helpers(directory: Path) -> None:
    """Remove the helpers and their private folder, but no other folder that is linked."""
    folder = helper_folder(directory)
    if not folder.name.startswith(_PREFIX) and folder != directory.resolve() / _FOLDER:
        return
    _remove(folder)
    with suppress(OSError):
        (directory / _FOLDER).unlink(missing_ok=True)


def _candidate_folders(directory: Path) -> Iterator[Path]:
    """Create and yield folders for the helpers, the preferred folder first."""
    if _SAFE_PATH.fullmatch(str(directory)):
        (directory / _FOLDER).mkdir()
        yield directory / _FOLDER
    for parent in (os.environ.get("XDG_RUNTIME_DIR", ""), "/tmp", "/var/tmp"):  # noqa: S108 - mkdtemp makes it safe
        with suppress(OSError):
            if parent.startswith("/") and _SAFE_PATH.fullmatch(parent):
                yield Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))


def _write(folder: Path, name: str, command: list[str]) -> None:
    path = folder / name
    path.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    path.chmod(0o755)


def _remove(folder: Path) -> None:
    with suppress(OSError):
        for name in (_CONTAINERIZER, _FETCHER):
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()
