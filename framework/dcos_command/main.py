"""Reads the command line: `dcos-tensorflow tensorflow plan status deploy`, as the dcos command calls it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Mapping

from . import __version__, cluster, plans
from .errors import CommandError
from .service import Service

INFO = "Distributed TensorFlow on DC/OS"
#: The name of a service that is installed without options.
SERVICE = "tensorflow"
#: What `dcos config set tensorflow.<name>` may set.
CONFIG_SCHEMA = {
    "$schema": "http://json-schema.org/schema#",
    "additionalProperties": False,
    "properties": {"service_name": {"title": "Service name", "type": "string"}},
    "type": "object",
}


def main(arguments: list[str] | None = None, environment: Mapping[str, str] | None = None) -> int:
    """0 done, 1 an error that is told on standard error, 2 wrong usage."""
    given = _parser().parse_args(_words(sys.argv[1:] if arguments is None else arguments))
    try:
        print(_answer(given, os.environ if environment is None else environment))  # noqa: T201 - it is its purpose
    except CommandError as error:
        print(f"dcos tensorflow: {error}", file=sys.stderr)  # noqa: T201
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # whoever read us has enough: nothing is left to flush to it
    return 0


def _words(arguments: list[str]) -> list[str]:
    """The dcos command gives the sub-command's own name first."""
    return arguments[1:] if arguments[:1] == [SERVICE] else arguments


def _answer(given: argparse.Namespace, environment: Mapping[str, str]) -> str:
    if given.info:
        return INFO
    if given.config_schema:
        return json.dumps(CONFIG_SCHEMA)
    found = cluster.find(environment)
    service = Service(found, given.name or found.service or SERVICE)
    if given.action == "list":
        return plans.names(service)
    return plans.status(service, given.plan, given.json)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dcos tensorflow", description=INFO)
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("--info", action="store_true", help="print what this is, in one line")
    parser.add_argument("--config-schema", action="store_true", help="print the settings, as JSON Schema")
    parser.add_argument("--name", help="name of the service; default: tensorflow, or what service_name is set to")
    groups = parser.add_subparsers(dest="group", metavar="command")
    plan = groups.add_parser("plan", aliases=["plans"], help="ordered work: what is done, what is left")
    actions = plan.add_subparsers(dest="action", metavar="action", required=True)
    actions.add_parser("list", help="the names of the plans")
    status = actions.add_parser("status", aliases=["show"], help="a plan with its phases and steps")
    status.add_argument("plan")
    status.add_argument("--json", action="store_true", help="as the scheduler's API gives it")
    return parser
