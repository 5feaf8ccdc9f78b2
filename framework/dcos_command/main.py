"""`dcos tensorflow ...`: what was typed becomes a command, its end the exit code."""

from __future__ import annotations

import os
import sys
from typing import Any, Mapping

from . import cluster
from .about import CONFIG_SCHEMA, INFO
from .address import URL, at, with_token
from .arguments import SERVICE, parser
from .errors import CommandError
from .failing import told, wants_json
from .parts import plain
from .perform import perform
from .screen import Screen
from .service import Service

_INTERRUPTED = 130
_FOLLOW = {"-f", "--follow"}


def main(arguments: list[str] | None = None, environment: Mapping[str, str] | None = None) -> int:
    """0 done, 1 an error that is told on standard error, 2 wrong usage, 3 nothing answers."""
    typed = _words(sys.argv[1:] if arguments is None else arguments)
    environment = os.environ if environment is None else environment
    try:
        with told(wants_json(typed, environment), sys.stdout, one_line=not _FOLLOW.isdisjoint(typed)):
            _run(vars(parser().parse_args(typed)), environment)
    except CommandError as error:
        print(f"dcos tensorflow: {plain(str(error))}", file=sys.stderr)  # noqa: T201 - it is its purpose
        return error.code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # whoever read us has enough: nothing is left to flush to it
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


def _words(arguments: list[str]) -> list[str]:
    """The dcos command gives the sub-command's own name first."""
    return arguments[1:] if arguments[:1] == [SERVICE] else arguments


def _run(given: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    command = given.get("command")
    screen = Screen(sys.stdout)
    if given["info"]:
        screen.show((INFO,))
    elif given["config_schema"]:
        screen.show((CONFIG_SCHEMA,))
    elif command is None:
        screen.show((parser().format_help(),))
    else:
        as_json = given.get("json") or command.sdk_json or wants_json((), environment)
        perform(command, _service(given, environment), given, screen, as_json=as_json)


def _service(given: Mapping[str, Any], environment: Mapping[str, str]) -> Service:
    """At the address that is given, else of the cluster that the dcos command is attached to."""
    name, url = given.get("name") or "", given.get("url") or environment.get(URL)
    if url:
        found = at(url, name.strip("/"), environment, Service.program)
    else:
        attached = cluster.find(environment)
        found = Service(attached, name or attached.service or SERVICE)
    return with_token(found, given.get("token") or "", environment)
