"""The command line and the environment of each node."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from .agents import AgentSpec
from .leftovers import MARK

# Isolated (no user's PYTHON* variables, nothing imported from the current folder, which may be a sandbox) and without
# site-packages: nodes and helpers need the standard library only, and helpers must start fast.
_RUN = "import sys; sys.path[:0] = {!r}; from mesos_local.node import main; sys.exit(main())"

MASTER_DEFAULTS = {"cluster": "local"}
AGENT_DEFAULTS = {
    "isolation": "posix/cpu,posix/mem,environment_secret",
    "launcher": "posix",
    "registration_backoff_factor": "50ms",  # the default waits up to a second before it registers
    "switch_user": "true" if os.geteuid() == 0 else "false",  # only root may run tasks as another user
    "systemd_enable_support": "false",
}


def node_command(*arguments: str) -> list[str]:
    """`python -m mesos_local.node ARGUMENTS`, but isolated, so that it runs the same wherever it is started."""
    return [sys.executable, "-I", "-S", "-c", _RUN.format(_homes()), *arguments]


def _homes() -> list[str]:
    """Folders of this package and of the executor's, which the fetcher shares the unpacking of archives with."""
    executor = importlib.util.find_spec("tf_executor")
    assert executor is not None, "it is installed with us"
    found = (Path(__file__), Path(str(executor.origin)))
    return list(dict.fromkeys(str(path.resolve().parent.parent) for path in found))


def environment(directory: Path, address: str = "", flags: Mapping[str, str] | None = None) -> dict[str, str]:
    """Ours, without any Mesos setting of the user's, plus the mark, the "IP:PORT" to listen on, and Mesos flags."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MESOS_", "LIBPROCESS_", "GLOG_"))}
    own[MARK] = str(directory)
    if address:
        own["LIBPROCESS_IP"], _, own["LIBPROCESS_PORT"] = address.rpartition(":")
    return own | {f"MESOS_{name.upper()}": value for name, value in (flags or {}).items()}


def normal_flags(flags: Mapping[str, object] | None) -> dict[str, str]:
    """Names with underscores, values as Mesos reads them: True is "true"."""
    return {
        name.lstrip("-").replace("-", "_"): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in (flags or {}).items()
    }


def master_flags(directory: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Flags of the master; `given` ones win over defaults, not over where it works."""
    return MASTER_DEFAULTS | dict(given) | {"work_dir": str(directory / "master")}


def agent_flags(directory: Path, launcher_dir: Path, spec: AgentSpec, given: Mapping[str, str]) -> dict[str, str]:
    """Flags of one agent, likewise. `launcher_dir`: see helpers.py."""
    fixed = {
        "work_dir": str(agent_directory(directory, spec.hostname)),
        # The default is one folder for all agents of a machine, which each clears when it starts.
        "fetcher_cache_dir": str(agent_directory(directory, spec.hostname) / "fetch"),
        "launcher_dir": str(launcher_dir),
        "hostname": spec.hostname,
        "resources": spec.resources_flag(),
        "registry": "in_memory",  # of the idle master in the agent's process, see launch.py
    }
    attributes = {"attributes": spec.attributes_flag()} if spec.attributes else {}
    stores = {f"{kind}_store_dir": str(agent_directory(directory, spec.hostname) / kind) for kind in ("appc", "docker")}
    return AGENT_DEFAULTS | stores | dict(given) | attributes | fixed


def agent_directory(directory: Path, hostname: str) -> Path:
    """Everything of one agent; its Mesos work dir, which libmesos' local mode places, is `agents/0/work` in it."""
    return directory / "agents" / hostname
