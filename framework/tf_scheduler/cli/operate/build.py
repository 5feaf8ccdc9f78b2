"""The commands of `dcos_command`, as click has them: with help, completion of names, and the options that all have."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from dcos_command.command import Argument, Command, Option
from dcos_command.errors import CommandError
from dcos_command.failing import told
from dcos_command.kinds import names
from dcos_command.perform import perform
from dcos_command.screen import Screen
from dcos_command.table import COMMANDS, GROUP_ALIASES, GROUPS

from .common import common
from .target import Wanted, find

_INTERRUPTED = 130
_COMPLETION = 2.0  # seconds that somebody waits for a name
_TYPES: Mapping[str, Mapping[str, Any]] = {
    "flag": {"is_flag": True},
    "text": {},
    "texts": {"multiple": True},
    "number": {},
}


def add_to(root: click.Group, without: Collection[str] = ()) -> None:
    """Put every command where its words say; without those groups, which `fill` fills when they are loaded."""
    for words, command, hidden in _spelled():
        if words[0] not in without:
            _group(root, words[:-1]).add_command(_build(command, words[-1], hidden=hidden))
    for alias, name in GROUP_ALIASES.items():
        original = root.commands[name]
        assert isinstance(original, click.Group), "only groups have such aliases"
        root.add_command(click.Group(alias, original.commands, help=original.help, hidden=True))


def fill(group: click.Group) -> None:
    """Put the commands of this group beside what it has."""
    for words, command, hidden in _spelled():
        if words[0] == group.name:
            group.add_command(_build(command, words[-1], hidden=hidden))


def _spelled() -> Iterator[tuple[tuple[str, ...], Command, bool]]:
    """Each way to say each command, and whether it is one that is not shown."""
    for command in COMMANDS:
        for number, words in enumerate(command.spellings):
            yield words, command, number > 0


def _group(root: click.Group, words: tuple[str, ...]) -> click.Group:
    if not words:
        return root
    above = _group(root, words[:-1])
    found = above.commands.get(words[-1])
    if found is None:
        found = click.Group(words[-1], help=GROUPS[" ".join(words)], hidden=len(words) > 1)
        above.add_command(found)
    assert isinstance(found, click.Group), f"{words} is a group"
    return found


def _build(command: Command, name: str, *, hidden: bool) -> click.Command:
    parameters: list[click.Parameter] = [_argument(argument) for argument in command.arguments]
    parameters += [_option(option) for option in command.options]
    if command.confirm:
        parameters.append(click.Option(["-y", "--yes"], is_flag=True, help="Do not ask."))
    spelled = [" ".join(words) for words in command.spellings[1:]]
    told = command.help + (f"\n\nAlso: {', '.join(spelled)}." if spelled and not hidden else "")
    return click.Command(name, params=[*parameters, *common()], help=told, callback=_callback(command), hidden=hidden)


def _argument(argument: Argument) -> click.Argument:
    complete = _completion(argument.kind) if argument.kind else None
    return click.Argument([argument.name], required=argument.required, shell_complete=complete)


def _option(option: Option) -> click.Option:
    flags = [f"--{option.name}", *([f"-{option.short}"] if option.short else []), option.key]
    metavar = option.metavar or None
    number = {"type": click.IntRange(option.least, option.most), "show_default": True, "default": option.default}
    shown = number if option.type == "number" else {}
    complete = _completion(option.kind) if option.kind else None
    told = {"help": option.help, "metavar": metavar, "shell_complete": complete, **shown}
    return click.Option(flags, **_TYPES[option.type], **told)


def _callback(command: Command) -> Callable[..., None]:
    def run(**given: Any) -> None:
        before = click.get_current_context().ensure_object(dict)
        as_json = given["as_json"] or before.get("as_json", False)
        try:
            with told(as_json, sys.stdout, one_line=given.get("follow", False)):
                service = find(_wanted(before, given), os.environ)
                perform(command, service, given, screen(), as_json=as_json)
        except KeyboardInterrupt:
            sys.exit(_INTERRUPTED)

    return run


def _wanted(before: Mapping[str, Any], given: Mapping[str, Any]) -> Wanted:
    """After the command counts more than before it."""
    said = {name: given.get(name) or before.get(name) or "" for name in ("name", "url", "token")}
    return Wanted(**said)


def screen() -> Screen:
    """Standard output, drawn as it is: a terminal, a file, or closed by who started us."""
    if sys.stdout is None:
        return Screen(Path(os.devnull).open("w"))
    if not sys.stdout.isatty():
        return Screen(sys.stdout)
    from .colours import ColourScreen  # only what is drawn needs it

    return ColourScreen()


def _completion(kind: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    def complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            service = find(_wanted(context.ensure_object(dict), context.params), os.environ)
            known = names(service.within(_COMPLETION), kind, context.params)
        except (CommandError, OSError):
            return []
        return [CompletionItem(name) for name in known if name.startswith(incomplete)]

    return complete
