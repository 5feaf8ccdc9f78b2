"""What the processes of a local cluster run: `python -m mesos_local.node master|agent|containerizer|fetcher|guard ...`.

Each verb imports only its own module: `containerizer` and `fetcher` run for every container.
"""

from __future__ import annotations

import sys

from .errors import MesosLocalError

USAGE = """usage: python -m mesos_local.node VERB ...
  master LIBRARY                 agent LIBRARY MASTER_IP:PORT
  containerizer LIBRARY ARG...   fetcher
  guard DIRECTORY IDENTITY keep|remove OWNER_PID OWNER_START_TIME"""


def main(arguments: list[str] | None = None) -> int:
    """Run one verb. Returns the exit code: 1 if it failed (the reason is on standard error), 2 for wrong usage."""
    verb, *rest = (sys.argv[1:] if arguments is None else arguments) or ["help"]
    try:
        return _run(verb, rest)
    except MesosLocalError as error:
        print(error, file=sys.stderr)  # noqa: T201 - the log of a node, or of a container, is its standard error
        return 1


def _run(verb: str, rest: list[str]) -> int:
    match verb, rest:
        case "master", [library]:
            from .launch import run_master

            run_master(library)
        case "agent", [library, master]:
            from .launch import run_agent

            run_agent(library, master)
        case "containerizer", [library, *arguments]:
            from .containerizer import run_launcher

            return run_launcher(library, arguments)
        case "fetcher", []:
            from .fetcher import run_fetcher

            run_fetcher()
        case "guard", [directory, identity, "keep" | "remove" as then, pid, start_time]:
            from pathlib import Path

            from .guard import REMOVE, run_guard
            from .process import ProcessId

            run_guard(Path(directory), identity, then == REMOVE, ProcessId(int(pid), int(start_time)))
        case _:
            print(USAGE, file=sys.stderr)  # noqa: T201
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
