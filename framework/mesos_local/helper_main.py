"""Entry point of every helper process of a local cluster.

`containerizer` and `fetcher` run for every container, so each verb imports only what it needs.
"""

from __future__ import annotations

import sys
from pathlib import Path

from .host import MesosLocalError, ProcessId

USAGE = """usage: python -m mesos_local.helper_main VERB ...
  master LIBRARY                 agent LIBRARY MASTER_IP:PORT
  containerizer LIBRARY ARG...   fetcher
  network DIRECTORY READY_PORT NODE=PORT...
  relay NETWORK_PROCESS PORT
  guard DIRECTORY IDENTITY keep|remove OWNER_PID OWNER_START_TIME"""


def main(arguments: list[str] | None = None) -> int:
    """Run one verb. Return exit code 1 after an error, 2 for wrong usage."""
    verb, *rest = (sys.argv[1:] if arguments is None else arguments) or ["help"]
    try:
        return _run(verb, rest)
    except MesosLocalError as error:
        print(error, file=sys.stderr)  # noqa: T201 - standard error is the log of a node or container
        return 1


def _run(verb: str, rest: list[str]) -> int:
    match verb, rest:
        case "master", [library]:
            from .libmesos.launch import run_master

            run_master(library)
        case "agent", [library, master]:
            from .libmesos.launch import run_agent

            run_agent(library, master)
        case "containerizer", [library, *arguments]:
            from .libmesos.launch import run_containerizer

            return run_containerizer(library, arguments)
        case "network", [directory, ready, *nodes]:
            from .network import run_network

            ports = {name: int(port) for name, _, port in (node.partition("=") for node in nodes)}
            run_network(Path(directory), int(ready), ports)
        case "relay", [holder, port]:
            from .network import run_relay

            run_relay(int(holder), int(port))
        case "fetcher", []:
            from .fetcher import run_fetcher

            run_fetcher()
        case "guard", [directory, identity, "keep" | "remove" as then, pid, start_time]:
            from .guard import run_guard

            run_guard(Path(directory), identity, then == "remove", ProcessId(int(pid), int(start_time)))
        case _:
            print(USAGE, file=sys.stderr)  # noqa: T201
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
