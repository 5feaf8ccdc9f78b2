"""Build the click commands of both programs from the command table."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Callable, Collection, Iterable, Iterator, Mapping, Sequence

import click
from click.shell_completion import CompletionItem

from . import JSON_VARIABLE, __version__
from .client import URL_VARIABLE, ServiceClient, ServiceOptions, client_at, installed_names, with_token
from .command import Command, CommandOption, FetchAll, Params
from .errors import CommandError, UnreachableError, UsageError, error_document, report_as_json, wants_json
from .execute import COMMANDS, GROUP_ALIASES, GROUP_EXAMPLES, GROUPS, perform, valid_names
from .output import Screen, remove_controls
from .transport import attached_cluster

#: Output of --info, which the dcos command asks of a sub-command.
INFO = "Distributed TensorFlow on DC/OS"
#: Output of --config-schema: the settings of `dcos config set tensorflow.<name>`.
CONFIG_SCHEMA = json.dumps(
    {
        "$schema": "http://json-schema.org/schema#",
        "additionalProperties": False,
        "properties": {
            "service_name": {"title": "Service name", "type": "string"},
            "token": {"title": "Token of the scheduler's API", "type": "string"},
        },
        "type": "object",
    }
)
#: Default name of a service.
DEFAULT_SERVICE = "tensorflow"
#: Exit codes of every command; those with other codes describe them.
EXIT_CODES = (
    "Exit code: 0 success, 1 the job or its input failed, 2 wrong usage or not confirmed, 3 no answer, 130 Ctrl-C. "
    "Commands with other exit codes describe them in their help."
)
CONTEXT_SETTINGS: Mapping[str, Any] = {"help_option_names": ["-h", "--help"]}
INTERRUPTED = 130
_COMPLETION_TIMEOUT = 2.0  # seconds
#: Sections of the top-level help.
HELP_SECTIONS: Mapping[str, Collection[str]] = {
    "Train": ("try", "submit", "list", "status", "progress", "logs", "open", "wait", "cancel", "result", "history"),
    "Change": ("scale", "update", "pod", "plan", "uninstall"),
    "Look": ("tasks", "why", "events", "health", "endpoints", "cluster", "describe", "config", "cp", "exec", "debug"),
    "Make": (
        *("options", "convert", "runtime", "local", "package", "executor", "scheduler", "state", "secrets", "doctor"),
    ),
}
#: Commands of other programs -> what does the same here.
_HABITS: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("ps", "jobs", "ls"), ("list", "tasks")),
    "get": ("list", "status"),
    **dict.fromkeys(("stop", "kill", "delete", "rm"), ("cancel", "uninstall")),
    **dict.fromkeys(("run", "start", "create", "apply", "train"), ("try", "submit", "local run")),
    **dict.fromkeys(("top", "info", "show"), ("status", "progress")),
    "log": ("logs",),
    "watch": ("progress", "wait"),
    **dict.fromkeys(("set", "rollback"), ("update",)),
    "resize": ("scale",),
}
_SHORT_HELP = 60  # characters


@dataclass(frozen=True)
class CliProgram:
    """Differences between `dcos tensorflow` and `dcos-tensorflow`."""

    #: Select the service by the options. Raise CommandError.
    find: Callable[[ServiceOptions, Mapping[str, str]], ServiceClient]
    #: Yield all services that the options allow; raise CommandError after those that can be found.
    find_all: Callable[[ServiceOptions, Mapping[str, str]], Iterable[ServiceClient]]
    screen: Callable[[], Screen]
    environment: Mapping[str, str]
    #: Return the result of the last ended run on this machine of a service; empty name: of any.
    ended: Callable[[str], Mapping[str, Any] | None] = lambda _name: None
    #: Print JSON where the DC/OS SDK's command does.
    sdk_json: bool = False
    #: Text before an error message.
    prefix: str = ""
    #: Name in the help's examples.
    name: str = "dcos-tensorflow"


class Group(click.Group):
    """A group that prints its help and exits with 2 when no command is given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not self.invoke_without_command and not ctx.resilient_parsing:
            raise _MissingCommand(ctx.get_help(), ctx)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Suggest commands after an unknown one."""
        known = self.list_commands(ctx)
        if args and args[0] not in known and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            habits = {} if ctx.parent else _HABITS
            near = [args[0]] if args[0] in habits else get_close_matches(args[0], [*habits, *known])
            words = (each for name in near for each in ([name] if name in known else habits[name]))
            close = list(dict.fromkeys(each for each in words if each.split()[0] in known))[:3]
            hint = f" Did you mean {' or '.join(f'`{words}`' for words in close)}?" if close else ""
            raise click.UsageError(f"No such command '{args[0]}'.{hint}", ctx)
        return super().resolve_command(ctx, args)

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

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a command whose short help, and that of its commands, is never cut off."""
        for each in (cmd, *getattr(cmd, "commands", {}).values()):
            each.short_help = each.get_short_help_str(_SHORT_HELP)
        super().add_command(cmd, name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands of the top level in sections."""
        if ctx.parent is not None:
            return super().format_commands(ctx, formatter)
        for title, names in HELP_SECTIONS.items():
            commands = ((name, self.get_command(ctx, name)) for name in names)
            rows = [(name, command.get_short_help_str(_SHORT_HELP)) for name, command in commands if command]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
        return None


class _PlainRange:
    """Number range described in help as `1 to 1000`, `1 or more` or `more than 0`."""

    def _describe_range(self: Any) -> str:
        if self.max is not None:
            return f"{self.min} to {self.max}"
        return f"more than {self.min}" if self.min_open else f"{self.min} or more"


class IntRange(_PlainRange, click.IntRange):
    """A range of whole numbers."""


class FloatRange(_PlainRange, click.FloatRange):
    """A range of numbers."""


class _MissingCommand(click.UsageError):
    def show(self, file: Any = None) -> None:
        click.echo(self.format_message(), file=file, err=True)


def add_commands(root: click.Group, program: CliProgram, without: Collection[str] = ()) -> None:
    """Add all commands to `root`, except those of the groups in `without`."""
    for words, command, hidden in _spellings():
        if words[0] not in without:
            _group(root, words[:-1], program).add_command(_build(command, words[-1], program, hidden=hidden))
    for alias, name in GROUP_ALIASES.items():
        original = root.commands[name]
        assert isinstance(original, click.Group), "only groups have such aliases"
        root.add_command(Group(alias, original.commands, help=original.help, hidden=True))
    path = click.Argument(["words"], nargs=-1, metavar="[COMMAND]...")
    root.add_command(click.Command("help", callback=_show_help, params=[path], help="Same as --help.", hidden=True))


def _show_help(words: Sequence[str]) -> None:
    """Same as `--help` of the command; the DC/OS SDK's sub-commands have both."""
    shown = click.get_current_context().find_root()
    for word in words:
        if not isinstance(shown.command, click.Group):
            raise click.UsageError(f"No such command '{word}'.", shown)
        command = shown.command.resolve_command(shown, [word])[1]
        assert command is not None, "resolve_command raises UsageError"
        shown = click.Context(command, shown, info_name=word, **command.context_settings)
    click.echo(shown.get_help())


def root_help(summary: str, name: str, *lines: str) -> str:
    """Help of a root: its summary, the exit codes, and examples."""
    return f"{summary}\n\n{EXIT_CODES}\n\n{example_block(name, lines)}"


def example_block(name: str, lines: Sequence[str]) -> str:
    """Examples of a help text; each line follows the name of the program."""
    return "\n".join(["\b", "Examples:", *(f"  {name} {line}" for line in lines)]) if lines else ""


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


def _group(root: click.Group, words: tuple[str, ...], program: CliProgram) -> click.Group:
    if not words:
        return root
    above = _group(root, words[:-1], program)
    group = above.commands.get(words[-1])
    if group is None:
        lines = GROUP_EXAMPLES.get(" ".join(words), ())
        text = f"{GROUPS[' '.join(words)]}\n\n{example_block(program.name, lines)}"
        group = Group(words[-1], help=text, hidden=len(words) > 1)
        above.add_command(group)
    assert isinstance(group, click.Group), f"{words} is a group"
    return group


def _build(command: Command, name: str, program: CliProgram, *, hidden: bool) -> click.Command:
    parameters: list[click.Parameter] = [
        click.Argument(
            [each.name],
            required=each.required,
            nargs=-1 if each.many else 1,
            shell_complete=_completion(each.kind, program),
        )
        for each in command.arguments
    ]
    parameters += [_option(option, program) for option in command.options]
    if command.confirm:
        parameters.append(click.Option(["-y", "--yes"], is_flag=True, help="Skip the confirmation."))
    aliases = [] if hidden else [" ".join(words) for words in command.spellings[1:]]
    width = max((len(each.name) for each in command.arguments), default=0)
    arguments = [f"{each.name.upper():<{width}}  {each.help}" for each in command.arguments if each.help]
    text = [command.help, command.details, "\n".join(["\b", *arguments]) if arguments else ""]
    text.append(f"Also: {', '.join(aliases)}." if aliases else "")
    text.append(f"Exit code: {command.exit_codes}." if command.exit_codes else "")
    hidden_options = [f"--{option.name}" for option in command.options if option.local and program.sdk_json]
    lines = [line for line in command.example_lines() if not any(name in line.split() for name in hidden_options)]
    text.append(example_block(program.name, lines))
    settings: dict[str, Any] = {
        "help": "\n\n".join(filter(None, text)),
        "callback": _callback(command, program),
        "hidden": hidden,
    }
    return click.Command(name, params=[*parameters, *common_options()], **settings)


def _option(option: CommandOption, program: CliProgram) -> click.Option:
    flags = [f"--{option.name}", *([f"-{option.short}"] if option.short else []), option.key]
    hidden = option.local and program.sdk_json
    settings: dict[str, Any] = {"help": option.help, "metavar": option.metavar or None, "hidden": hidden}
    if option.type == "number":
        settings.update(type=IntRange(option.minimum, option.maximum), show_default=True, default=option.default)
    if option.choices:
        settings.update(type=click.Choice(option.choices), show_default=True, default=option.default)
    if option.kind:
        settings["shell_complete"] = _completion(option.kind, program)
    return click.Option(flags, is_flag=option.type == "flag", multiple=option.type == "texts", **settings)


def common_options() -> list[click.Option]:
    """Options of every command that asks a service; also accepted before the command."""
    return [
        click.Option(["--name"], metavar="NAME", help="Name of the service."),
        click.Option(["--url"], metavar="URL", help="Scheduler URL, or DC/OS URL plus /service/NAME."),
        click.Option(["--token"], metavar="TOKEN", help="API token, if the service requires one."),
        click.Option(["--json", "as_json"], is_flag=True, envvar=JSON_VARIABLE, help="Print the answer as JSON."),
    ]


def root_options() -> list[click.Option]:
    """Root options: those stored for commands, and those that the dcos command calls."""
    options = common_options()
    for option in options:
        option.expose_value, option.callback = False, _keep
    return [
        *options,
        _printing("--info", INFO, "Print a one-line description."),
        _printing("--config-schema", CONFIG_SCHEMA, "Print the JSON Schema of the settings."),
    ]


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    context.ensure_object(dict)[parameter.name] = value


def _printing(flag: str, text: str, help_text: str) -> click.Option:
    """An option that prints a text and exits."""

    def show(context: click.Context, _parameter: click.Parameter, is_set: bool) -> None:
        if is_set:
            click.echo(text)
            context.exit()

    return click.Option([flag], is_flag=True, is_eager=True, expose_value=False, callback=show, help=help_text)


def _callback(command: Command, program: CliProgram) -> Callable[..., int]:
    def run_command(**params: Any) -> int:
        context = click.get_current_context()
        before = context.ensure_object(dict)
        as_json = params["as_json"] or before.get("as_json") or wants_json((), program.environment)
        as_json = as_json or (program.sdk_json and command.sdk_json)
        try:
            with report_as_json(as_json, sys.stdout, one_line=params.get("follow", False)):
                return _run(command, program, service_options(before, params), params, as_json)
        except KeyboardInterrupt:
            context.exit(INTERRUPTED)

    return run_command


def _run(command: Command, program: CliProgram, options: ServiceOptions, params: dict[str, Any], as_json: bool) -> int:
    """Run a command of the table; return the exit code. Raise CommandError."""
    params = {**params, "name": options.name}
    if command.fetch_all is not None:
        return _run_on_all(command, command.fetch_all, program, options, params, as_json)
    try:
        service = program.find(options, program.environment)
    except UnreachableError:
        ended = program.ended(options.name) if command.show_ended is not None and not options.url else None
        if ended is None or command.show_ended is None:
            raise
        program.screen().show((json.dumps(ended, indent=2),) if as_json else command.show_ended(ended, params))
        return command.exit_code(ended)
    try:
        return perform(command, service, params, program.screen(), as_json=as_json)
    except UnreachableError as error:  # the scheduler of a local run exits with its job
        if service.run is None:
            raise
        result = service.run.result()
        why = f"has ended: {result['verdict']}: {result['reason']}" if result else "is ending"
        raise UnreachableError(f"{service.name} {why}; see: {program.name} history show {service.name}") from error


def _run_on_all(
    command: Command, fetch: FetchAll, program: CliProgram, options: ServiceOptions, params: Params, as_json: bool
) -> int:
    """Ask all services, also if some of them cannot be found."""
    services: list[ServiceClient] = []
    problem = None
    try:
        for service in program.find_all(options, program.environment):
            services.append(service)
    except CommandError as error:
        if not services:
            raise
        problem = error
    answer = fetch(services)
    document = answer if problem is None else {**answer, **error_document(problem)}
    program.screen().show((json.dumps(document, indent=2),) if as_json else command.show(answer, params))
    if problem is not None:
        print_error(f"{program.prefix}{problem}")
        return problem.exit_code
    return command.exit_code(answer)


def service_options(before: Mapping[str, Any], params: Mapping[str, Any]) -> ServiceOptions:
    """The options after the command win over those before it."""
    options = {**before, **{name: value for name, value in params.items() if value is not None}}
    options["name"] = options.get("service") or options.get("name")
    return ServiceOptions(**{name: options.get(name) or "" for name in ("name", "url", "token", "run")})


def _completion(kind: str, program: CliProgram) -> Callable[..., list[CompletionItem]]:
    def complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            service = program.find(service_options(context.ensure_object(dict), context.params), program.environment)
            names = valid_names(replace(service, timeout=_COMPLETION_TIMEOUT), kind, context.params)
        except (CommandError, OSError):
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]

    return complete


def run_command(root: click.Group, name: str, arguments: Sequence[str], program: CliProgram) -> int:
    """Run one command; return the exit code, see EXIT_CODES."""
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
    """Print to standard error, which may be closed, or on a full disk."""
    with suppress(OSError):
        click.echo(remove_controls(text), err=True)


def plain_screen() -> Screen:
    """Plain text on standard output, which may be closed."""
    return Screen(Path(os.devnull).open("w") if sys.stdout is None else sys.stdout)


def find_service(options: ServiceOptions, environment: Mapping[str, str]) -> ServiceClient:
    """Find the service at --url or in the attached cluster. Raise CommandError."""
    if options.run:
        raise UsageError("--run: only dcos-tensorflow has local runs")
    url = options.url or environment.get(URL_VARIABLE)
    if url:
        service = client_at(url, options.name.strip("/"), environment, ServiceClient.program)
    else:
        attached = attached_cluster(environment)
        service = ServiceClient(attached, options.name or attached.service or DEFAULT_SERVICE)
    return with_token(service, options.token, environment)


def find_services(options: ServiceOptions, environment: Mapping[str, str]) -> Sequence[ServiceClient]:
    """Find the service at --url, else all of the attached cluster. Raise CommandError."""
    service = find_service(options, environment)
    if options.url or environment.get(URL_VARIABLE):
        return [service]
    return [replace(service, name=name) for name in installed_names(service) if options.name.strip("/") in ("", name)]


def main(arguments: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> int:
    """Run one command of `dcos tensorflow`; return the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == [DEFAULT_SERVICE]:  # the dcos command passes the sub-command's own name first
        arguments = arguments[1:]
    program = CliProgram(
        find_service,
        find_services,
        plain_screen,
        os.environ if environment is None else environment,
        sdk_json=True,
        prefix="dcos tensorflow: ",
        name="dcos tensorflow",
    )
    return run_command(root_group(program), "dcos tensorflow", arguments or ["--help"], program)


def root_group(program: CliProgram) -> Group:
    """The root command of `dcos tensorflow`."""
    help_text = root_help(INFO, program.name, "submit options.json", "--name=mnist status", "list")
    root = Group("tensorflow", help=help_text, params=[*root_options()], context_settings=dict(CONTEXT_SETTINGS))
    root.params.append(_printing("--version", __version__, "Print the version."))
    add_commands(root, program)
    return root
