"""A real ZooKeeper server: the jars of Debian's `zookeeper` package, on loopback, with a configuration of our own."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterable
from pathlib import Path

from .errors import MesosLocalError
from .members import Node

JARS = Path("/usr/share/java")
_MISSING = "A local ZooKeeper needs {}: on Debian, apt-get install zookeeper default-jre-headless."
# The server and what it loads; slf4j-simple logs to standard error.
_NETTY = (
    *("handler", "common", "buffer", "transport", "codec", "resolver"),
    *("transport-native-epoll", "transport-native-unix-common"),  # named by the code that TLS needs
)
_CLASS_PATH = (
    *("zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-simple", "metrics-core", "snappy-java"),
    *(f"netty-{part}" for part in _NETTY),
)
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
# Small and quick to start; KB of log preallocated at a time, by default 64 MB.
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
#: Java reads the names of files as the locale has it, and cannot open many of them in the locale C.
ENVIRONMENT = {"LC_ALL": "C.UTF-8"}


class ZooKeeperNode(Node):
    """A ZooKeeper server, alone or of an ensemble."""

    def mode(self) -> str | None:
        """`standalone`, `leader` or `follower`; None while it does not serve, or does not answer."""
        try:
            lines = ask(self.address, "srvr").splitlines()
        except OSError:
            return None
        return next((line.removeprefix("Mode: ") for line in lines if line.startswith("Mode: ")), None)

    def ready(self) -> bool:
        """Whether it serves: it accepts connections a moment before."""
        return self.mode() is not None


def ask(address: str, word: str) -> str:
    """What the server at "IP:PORT" answers to a "four letter word", `srvr` or `ruok`. Raises OSError."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=_ANSWER_TIMEOUT) as connection:
        connection.sendall(word.encode())
        with connection.makefile() as answer:
            return answer.read()


def zookeeper_command(
    folder: Path,
    address: str,
    jars: Path = JARS,
    *,
    settings: Iterable[str] = (),
    number: int | None = None,
    durable: bool = False,
) -> list[str]:
    """Write the configuration for a server at "IP:PORT" into `folder`; returns the command that runs it.

    `settings`: further lines of its zoo.cfg. `number`: its number in an ensemble; default: it is alone. `durable`:
    whether it waits for the disk before it answers. tickTime 500 ms: sessions may time out after 1 s to 10 s.
    Raises MesosLocalError naming Debian's packages if Java or a jar is absent.
    """
    java = shutil.which("java")
    paths = [jars / f"{name}.jar" for name in _CLASS_PATH]
    missing = ([] if java else ["java"]) + [str(path) for path in paths if not path.exists()]
    if java is None or missing:
        raise MesosLocalError(_MISSING.format(", ".join(missing)))
    configuration = _write_configuration(folder, address, settings, number)
    sync = () if durable else (_NO_SYNC,)
    return [java, *_JVM, *sync, "-cp", ":".join(map(str, paths)), _MAIN, str(configuration)]


def _write_configuration(folder: Path, address: str, settings: Iterable[str], number: int | None) -> Path:
    host, _, port = address.rpartition(":")
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    if number is not None:
        (data / "myid").write_text(f"{number}\n")
    configuration = folder / "zoo.cfg"
    lines = (_CONFIGURATION.format(host=host, port=port, data=data), *(f"{line}\n" for line in settings))
    configuration.write_bytes(_property_text("".join(lines)))
    return configuration


def _property_text(text: str) -> bytes:
    """As java.util.Properties.load reads it: Latin-1, and a backslash begins an escape. We write none of our own."""
    units = text.replace("\\", "\\\\").encode("utf-16-be")
    codes = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return b"".join(b"%c" % code if code < 128 else b"\\u%04x" % code for code in codes)
