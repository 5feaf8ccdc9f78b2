"""The command line of `dcos tensorflow`, made of the table of commands."""

from __future__ import annotations

import argparse
import re
from functools import lru_cache
from typing import Any, Callable, NoReturn, Tuple

from . import __version__
from .about import INFO
from .command import Command, Option
from .errors import UsageError
from .table import COMMANDS, GROUP_ALIASES, GROUPS

#: The name of a service that is installed without options.
SERVICE = "tensorflow"
_Words = Tuple[str, ...]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}\n{self.format_usage().strip()}")


@lru_cache(maxsize=None)
def parser() -> argparse.ArgumentParser:
    """Everything that can be typed. Its result has `command`, the given arguments and options, and the global ones.

    What makes no sense raises UsageError.
    """
    root = _Parser(prog="dcos tensorflow", description=INFO)
    root.add_argument("--version", action="version", version=__version__)
    root.add_argument("--info", action="store_true", help="print what this is, in one line")
    root.add_argument("--config-schema", action="store_true", help="print the settings, as JSON Schema")
    _globals(root)
    groups: dict[_Words, Any] = {(): root.add_subparsers(metavar="command")}
    for command in COMMANDS:
        for number, words in enumerate(command.spellings):
            _add(groups, words, command, documented=number == 0)
    return root


def _globals(parser: argparse.ArgumentParser) -> None:
    """Before the command or after it."""
    quiet: dict[str, Any] = {"default": argparse.SUPPRESS}
    parser.add_argument(
        "--name", help="name of the service; default: tensorflow, or what service_name is set to", **quiet
    )
    parser.add_argument("--url", help="where its scheduler is, or DC/OS with /service/NAME", **quiet)
    parser.add_argument("--token", help="what it wants to see, if it does", **quiet)
    parser.add_argument("--json", action="store_true", help="as the scheduler's API gives it", **quiet)


def _add(groups: dict[_Words, Any], words: _Words, command: Command, *, documented: bool) -> None:
    _group(groups, words[:-1])
    told = {"help": _lower(command.help)} if documented else {}
    parser = groups[words[:-1]].add_parser(words[-1], description=command.help, **told)
    parser.set_defaults(command=command)
    _globals(parser)
    for argument in command.arguments:
        parser.add_argument(argument.name, nargs=None if argument.required else "?", help=argument.help or None)
    for option in command.options:
        parser.add_argument(*_flags(option), **_settings(option))
    if command.confirm:
        parser.add_argument("--yes", "-y", action="store_true", help="do not ask")


def _group(groups: dict[_Words, Any], words: _Words) -> None:
    """The group that these words begin, and those above it."""
    if words in groups:
        return
    _group(groups, words[:-1])
    told = GROUPS[" ".join(words)]
    aliases = [alias for alias, name in GROUP_ALIASES.items() if (name,) == words]
    parser = groups[words[:-1]].add_parser(words[-1], help=_lower(told), description=told, aliases=aliases)
    groups[words] = parser.add_subparsers(metavar="action", required=True)


def _flags(option: Option) -> list[str]:
    return [f"--{option.name}", *([f"-{option.short}"] if option.short else [])]


def _settings(option: Option) -> dict[str, Any]:
    common: dict[str, Any] = {"help": _lower(option.help), "dest": option.key, "default": option.default}
    if option.type == "flag":
        return {**common, "action": "store_true", "default": False}
    metavar = option.metavar or option.name.upper()
    if option.type == "texts":
        return {**common, "action": "append", "metavar": metavar, "default": list(option.default or ())}
    return {**common, "metavar": metavar, **({"type": _number(option)} if option.type == "number" else {})}


def _number(option: Option) -> Callable[[str], int]:
    def number(text: str) -> int:
        found = int(text) if re.fullmatch(r"[0-9]{1,18}", text) else -1
        if found < option.least or (option.most is not None and found > option.most):
            raise argparse.ArgumentTypeError(f"{text} is no number {_range(option)}")
        return found

    return number


def _range(option: Option) -> str:
    return f"from {option.least} " + ("on" if option.most is None else f"to {option.most}")


def _lower(text: str) -> str:
    """As argparse's own help texts."""
    return text[:1].lower() + text[1:].rstrip(".")
