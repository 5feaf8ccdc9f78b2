"""`dcos tensorflow ...`, and the click commands of both programs, built from the one table."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Collection, Iterator, Mapping, Sequence

import click
from click.shell_completion import CompletionItem

from . import JSON_VARIABLE, __version__
from .client import URL_VARIABLE, ServiceClient, ServiceOptions, client_at, with_token
from .command import Command, CommandArgument, CommandOption
from .errors import CommandError, UsageError, error_document, report_as_json, wants_json
from .execute import COMMANDS, GROUP_ALIASES, GROUPS, perform, valid_names
from .output import Screen, remove_controls
from .transport import attached_cluster

#: The answer to --info, which the dcos command asks of a sub-command.
INFO = "Distributed TensorFlow on DC/OS"
#: The answer to --config-schema: what `dcos config set tensorflow.<name>` may set.
CONFIG_SCHEMA = json.dumps(
    {
        "$schema": "http://json-schema.org/schema#",
        "additionalProperties": False,
        "properties": {"service_name": {"title": "Service name", "type": "string"}},
        "type": "object",
    }
)
#: Default name of a service.
DEFAULT_SERVICE = "tensorflow"
CONTEXT_SETTINGS: Mapping[str, Any] = {"help_option_names": ["-h", "--help"]}
INTERRUPTED = 130
_COMPLETION = 2.0  # seconds that a completion may take


@dataclass(frozen=True)
class CliProgram:
    """What differs between `dcos tensorflow` and `dcos-tensorflow`."""

    #: Find the service that the options mean. Raise CommandError.
    find: Callable[[ServiceOptions, Mapping[str, str]], ServiceClient]
    screen: Callable[[], Screen]
    environment: Mapping[str, str]
    #: Print JSON where the DC/OS SDK's command does.
    sdk_json: bool = False
    #: Text before an error message.
    prefix: str = ""


class Group(click.Group):
    """A group whose help is printed, as wrong usage, when no command is given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not self.invoke_without_command and not ctx.resilient_parsing:
            raise _MissingCommand(ctx.get_help(), ctx)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Treat a closed pipe as success: click itself would exit with 1."""
        if ctx.parent is not None:
            return super().invoke(ctx)
        try:
            result = super().invoke(ctx)
            if sys.stdout is not None:
                sys.stdout.flush()
            return result
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0


class _MissingCommand(click.UsageError):
    def show(self, file: Any = None) -> None:
        click.echo(self.format_message(), file=file, err=True)


def add_commands(root: click.Group, program: CliProgram, without: Collection[str] = ()) -> None:
    """Add every command of the table to `root`, except those of the groups in `without`; see `fill`."""
    for words, command, hidden in _spellings():
        if words[0] not in without:
            _group(root, words[:-1]).add_command(_build(command, words[-1], program, hidden=hidden))
    for alias, name in GROUP_ALIASES.items():
        original = root.commands[name]
        assert isinstance(original, click.Group), "only groups have such aliases"
        root.add_command(Group(alias, original.commands, help=original.help, hidden=True))


def add_group_commands(group: click.Group, program: CliProgram) -> None:
    """Add the commands of the table that belong to this group."""
    for words, command, hidden in _spellings():
        if words[0] == group.name:
            group.add_command(_build(command, words[-1], program, hidden=hidden))


def _spellings() -> Iterator[tuple[tuple[str, ...], Command, bool]]:
    """Each spelling of each command, and whether help hides it."""
    for command in COMMANDS:
        for number, words in enumerate(command.spellings):
            yield words, command, number > 0


def _group(root: click.Group, words: tuple[str, ...]) -> click.Group:
    if not words:
        return root
    above = _group(root, words[:-1])
    group = above.commands.get(words[-1])
    if group is None:
        group = Group(words[-1], help=GROUPS[" ".join(words)], hidden=len(words) > 1)
        above.add_command(group)
    assert isinstance(group, click.Group), f"{words} is a group"
    return group


def _build(command: Command, name: str, program: CliProgram, *, hidden: bool) -> click.Command:
    parameters: list[click.Parameter] = [_argument(argument, program) for argument in command.arguments]
    parameters += [_option(option, program) for option in command.options]
    if command.confirm:
        parameters.append(click.Option(["-y", "--yes"], is_flag=True, help="Do not ask."))
    aliases = [] if hidden else [" ".join(words) for words in command.spellings[1:]]
    arguments = [f"{each.name.upper()}  {each.help}" for each in command.arguments if each.help]
    text = [command.help, *(["\n".join(["\b", *arguments])] if arguments else [])]
    text += [f"Also: {', '.join(aliases)}."] if aliases else []
    settings: dict[str, Any] = {"help": "\n\n".join(text), "callback": _callback(command, program), "hidden": hidden}
    return click.Command(name, params=[*parameters, *common_options()], **settings)


def _argument(argument: CommandArgument, program: CliProgram) -> click.Argument:
    complete = _completion(argument.kind, program) if argument.kind else None
    return click.Argument([argument.name], required=argument.required, shell_complete=complete)


def _option(option: CommandOption, program: CliProgram) -> click.Option:
    flags = [f"--{option.name}", *([f"-{option.short}"] if option.short else []), option.key]
    settings: dict[str, Any] = {"help": option.help, "metavar": option.metavar or None}
    if option.type == "number":
        settings.update(type=click.IntRange(option.minimum, option.maximum), show_default=True, default=option.default)
    if option.kind:
        settings["shell_complete"] = _completion(option.kind, program)
    return click.Option(flags, is_flag=option.type == "flag", multiple=option.type == "texts", **settings)


def common_options() -> list[click.Option]:
    """The options that every command that asks a service has; also before the command."""
    return [
        click.Option(["--name"], help="Name of the service."),
        click.Option(["--url"], help="Where its scheduler is, or DC/OS with /service/NAME."),
        click.Option(["--token"], help="What it wants to see, if it does."),
        click.Option(
            ["--json", "as_json"], is_flag=True, envvar=JSON_VARIABLE, help="Print the scheduler's answer, as JSON."
        ),
    ]


def root_options() -> list[click.Option]:
    """The common options for the root, which keeps their values in the context's object, and those for DC/OS."""
    options = common_options()
    for option in options:
        option.expose_value, option.callback = False, _keep
    settings_help = "Print the settings of the dcos command for it, as JSON Schema."
    return [
        *options,
        _printing("--info", INFO, "Print what this is, in one line."),
        _printing("--config-schema", CONFIG_SCHEMA, settings_help),
    ]


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    context.ensure_object(dict)[parameter.name] = value


def _printing(flag: str, text: str, help_text: str) -> click.Option:
    """An option that prints a text and exits."""

    def show(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
        if wanted:
            click.echo(text)
            context.exit()

    return click.Option([flag], is_flag=True, is_eager=True, expose_value=False, callback=show, help=help_text)


def _callback(command: Command, program: CliProgram) -> Callable[..., None]:
    def run_command(**params: Any) -> None:
        context = click.get_current_context()
        before = context.ensure_object(dict)
        as_json = params["as_json"] or before.get("as_json") or wants_json((), program.environment)
        as_json = as_json or (program.sdk_json and command.sdk_json)
        try:
            with report_as_json(as_json, sys.stdout, one_line=params.get("follow", False)):
                service = program.find(_service_options(before, params), program.environment)
                perform(command, service, params, program.screen(), as_json=as_json)
        except KeyboardInterrupt:
            context.exit(INTERRUPTED)

    return run_command


def _service_options(before: Mapping[str, Any], params: Mapping[str, Any]) -> ServiceOptions:
    """The options after the command win over those before it."""
    given = {**before, **{name: value for name, value in params.items() if value is not None}}
    return ServiceOptions(**{name: given.get(name) or "" for name in ("name", "url", "token")})


def _completion(
    kind: str, program: CliProgram
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    def complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            service = program.find(_service_options(context.ensure_object(dict), context.params), program.environment)
            known = valid_names(service.with_timeout(_COMPLETION), kind, context.params)
        except (CommandError, OSError):
            return []
        return [CompletionItem(name) for name in known if name.startswith(incomplete)]

    return complete


def run_command(root: click.Group, name: str, arguments: Sequence[str], program: CliProgram) -> int:
    """Run one command; return the exit code.

    0 success, 1 an error, which is printed on standard error, 2 wrong usage, 3 no answer, 130 Ctrl-C.
    """
    try:
        return root.main(args=list(arguments), prog_name=name, standalone_mode=False) or 0
    except click.ClickException as error:
        if wants_json(arguments, program.environment):
            click.echo(json.dumps(error_document(UsageError(error.format_message())), indent=2))
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except CommandError as error:
        print_error(f"{program.prefix}{error}")
        return error.exit_code


def print_error(text: str) -> None:
    """Print to standard error, which may be closed: the exit code remains."""
    with suppress(BrokenPipeError):
        click.echo(remove_controls(text), err=True)


def plain_screen() -> Screen:
    """Standard output as plain text; it may be closed."""
    return Screen(Path(os.devnull).open("w") if sys.stdout is None else sys.stdout)


def find_service(options: ServiceOptions, environment: Mapping[str, str]) -> ServiceClient:
    """The service at --url, else the one of the cluster that the dcos command is attached to. Raise CommandError."""
    url = options.url or environment.get(URL_VARIABLE)
    if url:
        service = client_at(url, options.name.strip("/"), environment, ServiceClient.program)
    else:
        attached = attached_cluster(environment)
        service = ServiceClient(attached, options.name or attached.service or DEFAULT_SERVICE)
    return with_token(service, options.token, environment)


def main(arguments: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> int:
    """Run one command of `dcos tensorflow`; return the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == [DEFAULT_SERVICE]:  # the dcos command passes the sub-command's own name first
        arguments = arguments[1:]
    program = CliProgram(
        find_service,
        plain_screen,
        os.environ if environment is None else environment,
        sdk_json=True,
        prefix="dcos tensorflow: ",
    )
    root = Group("tensorflow", help=INFO, params=[*root_options()], context_settings=dict(CONTEXT_SETTINGS))
    root.params.append(_printing("--version", __version__, "Print the version."))
    add_commands(root, program)
    return run_command(root, "dcos tensorflow", arguments or ["--help"], program)
