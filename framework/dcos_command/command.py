"""Click classes of both programs, and decorators that declare service commands.

A command of a service is a function with the decorator `command` and those of its arguments and options. It is added
to COMMANDS, whose commands become those of `dcos tensorflow` and `dcos-tensorflow`.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from difflib import get_close_matches
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Collection, Iterable, Mapping, Sequence, TypeVar

import click
from click.shell_completion import CompletionItem

from . import JSON_VARIABLE
from .errors import CommandError, RefusedError, UnreachableError, report_as_json, wants_json
from .output import Renderable, Screen, confirm, remove_controls

if TYPE_CHECKING:
    from .client import ServiceClient, ServiceOptions

_Command = TypeVar("_Command", bound=Callable[..., Any])
INTERRUPTED = 130
_COMPLETION_TIMEOUT = 2.0  # seconds
_MAX_NAMES = 12  # names in a hint
#: Statuses of the answer to a wrong name.
_NAME_ERROR_CODES = (400, 404)
#: Sections of the top-level help.
HELP_SECTIONS: Mapping[str, Collection[str]] = {
    "Train": (
        "try",
        "submit",
        "queue",
        "list",
        "status",
        "progress",
        "logs",
        "open",
        "wait",
        "cancel",
        "result",
        "history",
    ),
    "Change": ("scale", "update", "pod", "plan", "uninstall"),
    "Inspect": (
        "tasks",
        "why",
        "events",
        "health",
        "endpoints",
        "cluster",
        "describe",
        "config",
        "cp",
        "exec",
        "stacks",
        "debug",
    ),
    "Build": (
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


#: Name of an argument or option -> its value.
Params = Mapping[str, Any]


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
    #: Serve past runs of this machine and of a folder, with one selected by its name; show a client of their page.
    #: Return whether such a run exists.
    serve_runs: Callable[[str, Path | None, Callable[[ServiceClient], Any]], bool] = lambda *_: False
    #: Print JSON where the DC/OS SDK's command does.
    sdk_json: bool = False
    #: Text before an error message.
    prefix: str = ""
    #: Name in the help's examples.
    name: str = "dcos-tensorflow"


def program_of(context: click.Context) -> CliProgram:
    """The running program."""
    root = context.find_root().command
    program = root.program if isinstance(root, Group) else None
    assert program is not None, "set by main.add_commands"
    return program


# --- groups


class _WithExamples(click.Command):
    """A command whose help ends with examples; each starts with the program's name."""

    examples: Sequence[str] = ()

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        if lines := self.visible_examples(ctx):
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(example_block(program_of(ctx).name, lines))

    def visible_examples(self, _ctx: click.Context) -> Sequence[str]:
        """The examples that the running program can run."""
        return self.examples


class Group(_WithExamples, click.Group):
    """A group that prints its help and exits with 2 when no command is given."""

    #: Of a root.
    program: CliProgram | None = None
    #: Command that runs if none is named; empty: the help is printed.
    default = ""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_option = bool(args) and args[0].startswith("-") and args[0] not in ctx.help_option_names
        if self.default and (not args or is_option) and not ctx.resilient_parsing:
            args = [self.default, *args]
        if not args and not self.invoke_without_command and not ctx.resilient_parsing:
            raise _MissingCommand(ctx.get_help(), ctx)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Return the named command; suggest similar commands for an unknown name."""
        names = self.list_commands(ctx)
        if args and args[0] not in names and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            habits = {} if ctx.parent else _HABITS
            near = [args[0]] if args[0] in habits else get_close_matches(args[0], [*habits, *names])
            words = (each for name in near for each in ([name] if name in names else habits[name]))
            close = list(dict.fromkeys(each for each in words if each.split()[0] in names))[:3]
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
        """Add a command; do not cut off its short help, nor that of its sub-commands."""
        for each in (cmd, *getattr(cmd, "commands", {}).values()):
            each.short_help = each.get_short_help_str(_SHORT_HELP)
        super().add_command(cmd, name)


@dataclass(frozen=True)
class Listed:
    """A command that is imported when it is called.

    `summary`: its first sentence; empty for a hidden spelling. `modules`: those that declare it, or its commands.
    `same_as`: the group of which this is a spelling.
    """

    summary: str
    modules: Sequence[str]
    same_as: str = ""


def declared_in(module: str, **summaries: str) -> Mapping[str, Listed]:
    """Return commands that one module declares, by name."""
    return {name: Listed(summary, (module,)) for name, summary in summaries.items()}


class LazyGroup(Group):
    """A group that imports a command when it is called; `later`: name -> command.

    Most commands need much of the program, which help, completion and the others need not load.
    """

    def __init__(self, *arguments: Any, later: Mapping[str, Listed], **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.later = later

    def list_commands(self, _context: click.Context) -> list[str]:
        return sorted({*self.commands, *self.later})

    def get_command(self, _context: click.Context | None, name: str) -> click.Command | None:
        if name not in self.commands and name in self.later:
            listed = self.later[name]
            *_, module = map(importlib.import_module, listed.modules)
            if module.__name__.startswith("dcos_command."):
                made = copy(COMMANDS.commands[listed.same_as or name])
                made.hidden = not listed.summary
            else:
                made = getattr(module, f"{name}_" if iskeyword(name) else name)
            self.add_command(made, name)
        return self.commands.get(name)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        items = [CompletionItem(*row) for row in self._rows(self.list_commands(ctx)) if row[0].startswith(incomplete)]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, those of the top level in sections."""
        sections = {"Commands": self.list_commands(ctx)} if ctx.parent else HELP_SECTIONS
        for title, names in sections.items():
            if rows := self._rows(names):
                with formatter.section(title):
                    formatter.write_dl(rows)

    def _rows(self, names: Iterable[str]) -> list[tuple[str, str]]:
        """Return names and summaries of commands that are not hidden."""
        own = {name: each.short_help or "" for name, each in self.commands.items() if not each.hidden}
        known = {**own, **{name: each.summary for name, each in self.later.items()}}
        return [(name, known[name]) for name in names if known.get(name)]


def late(module: str, name: str) -> Callable[..., Any]:
    """Return a function that calls another one, whose module is imported then."""

    def call(*arguments: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*arguments)

    return call


def example_block(name: str, lines: Sequence[str]) -> str:
    """Format examples for a help text; each line starts with the program's name."""
    return "\n".join(["\b", "Examples:", *(f"  {name} {line}" for line in lines)]) if lines else ""


def examples(*lines: str) -> Callable[[_Command], _Command]:
    """Add examples to a command's long help; each line follows `dcos-tensorflow`."""

    def decorate(function: _Command) -> _Command:
        block = example_block(CliProgram.name, lines)
        function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n{block}"
        return function

    return decorate


# --- parameters


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


class Name(click.ParamType):
    """Type of an argument that names a part of a service, such as a task.

    The shell completes valid names. After an invalid name, a message suggests valid names. `listing`: the command that
    lists the valid names.
    """

    def __init__(self, name: str, listing: str, fetch: Callable[[ServiceClient, Params], Sequence[str]]) -> None:
        self.name, self.listing, self.fetch = name, listing, fetch

    def listing_of(self, _params: Params) -> str:
        """The command that lists the names, with its arguments."""
        return self.listing

    def shell_complete(self, ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        program = program_of(ctx)
        try:
            service = program.find(service_options(ctx.ensure_object(dict), ctx.params), program.environment)
            names = self.fetch(replace(service, timeout=_COMPLETION_TIMEOUT), ctx.params)
        except (CommandError, OSError):
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]

    def hint(self, service: ServiceClient, value: str, params: Params, *, listed: bool) -> str:
        """Return valid names and the command that lists them; empty for a valid value.

        `listed`: the scheduler's message already lists the names, so this text omits them.
        """
        try:
            names = self.fetch(service, params)
        except CommandError:
            return ""
        if value in names:
            return ""
        suggestion = self._suggestion(value, names, listed)
        return f"\n{suggestion}See: {service.program} {self.listing_of(params)}"

    def _suggestion(self, value: str, names: Sequence[str], listed: bool) -> str:
        close = get_close_matches(value, names, n=_MAX_NAMES)
        if close:
            *others, last = [name for name in names if name in close]
            return f"Did you mean {', '.join(others)}{' or ' if others else ''}{last}? "
        if listed:
            return ""
        if not names:
            return f"No {self.name} exists. "
        more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        return f"Valid names: {', '.join(names[:_MAX_NAMES])}{more}. "


class Argument(click.Argument):
    """A positional argument with its help and an example."""

    def __init__(self, *arguments: Any, help: str = "", example: str = "", **settings: Any) -> None:  # noqa: A002
        super().__init__(*arguments, **settings)
        self.help, self.example = help, example


class LocalOption(click.Option):
    """An option that `dcos tensorflow`, without local runs, refuses and hides."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        return None if program_of(ctx).sdk_json else super().get_help_record(ctx)


def argument(name: str, kind: Name | None = None, **settings: Any) -> Callable[[Any], Any]:
    """Declare a positional argument (see Argument); `kind` defines its valid names."""
    return click.argument(name, cls=Argument, type=kind, **settings)


def common_options() -> list[click.Option]:
    """Options of every command that asks a service; also accepted before the command."""
    return [
        click.Option(["--name"], metavar="NAME", help="Name of the service."),
        click.Option(["--url"], metavar="URL", help="Scheduler URL, or DC/OS URL plus /service/NAME."),
        click.Option(["--token"], metavar="TOKEN", help="API token, if the service requires one."),
        click.Option(["--json", "as_json"], is_flag=True, envvar=JSON_VARIABLE, help="Print the answer as JSON."),
    ]


def service_options(before: Mapping[str, Any], params: Mapping[str, Any]) -> ServiceOptions:
    """Merge options before and after the command; those after it take precedence."""
    from .client import ServiceOptions

    options = {**before, **{name: value for name, value in params.items() if value is not None}}
    options["name"] = options.get("service") or options.get("name")
    return ServiceOptions(**{name: options.get(name) or "" for name in ("name", "url", "token", "run")})


# --- commands


@dataclass
class CommandCall:
    """A call of a command: finds the service, confirms, and prints the answer."""

    program: CliProgram
    options: ServiceOptions
    as_json: bool = False
    #: None until it is found.
    client: ServiceClient | None = None

    @property
    def service(self) -> ServiceClient:
        """The service that the options select, see `find`."""
        return self.find()

    def find(self) -> ServiceClient:
        """Find the service that the options select, once. Raise CommandError if none."""
        if self.client is None:
            self.client = self.program.find(self.options, self.program.environment)
        return self.client

    def ended_run(self) -> Any:
        """Return the result of the last local run if no service runs, else None."""
        try:
            self.find()
        except UnreachableError:
            ended = None if self.options.url else self.program.ended(self.options.name)
            if ended is None:
                raise
            return ended
        return None

    def confirm(self, question: str, *, yes: bool, effects: Renderable = ()) -> None:
        """Show the effects, and ask the question unless `yes`.

        Raise UsageError if the user declines. Raise CommandError before the question if no service is found.
        """
        self.find()
        Screen(sys.stderr).show(effects)  # standard output is for the answer
        if not yes:
            confirm(question, sys.stdin, sys.stderr)

    def show(self, answer: Any, show: Callable[[Any], Renderable], code: int = 0) -> int:
        """Print the answer, as JSON or as `show` renders it; return the exit code."""
        self.program.screen().show((json.dumps(answer, indent=2),) if self.as_json else show(answer))
        return code

    def follow(self, items: Iterable[Any], show: Callable[[Any], Renderable]) -> int:
        """Print each item as it arrives, until the reader closes the output."""
        screen = self.program.screen()
        with screen.quit_on_close():
            for item in items:
                screen.show((json.dumps(item),) if self.as_json else show(item))
        return 0


class ServiceCommand(_WithExamples):
    """A command that asks a service.

    Its function receives the CommandCall and the command's parameters. `sdk_json`: `dcos tensorflow` prints JSON,
    because scripts read the JSON of the DC/OS SDK's command.
    """

    def __init__(
        self,
        *arguments: Any,
        also: Sequence[str] = (),
        exit_codes: str = "",
        examples: Sequence[str] = (),
        sdk_json: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(*arguments, **settings)
        self.params += common_options()
        self.arguments = [each for each in self.params if isinstance(each, Argument)]
        self.examples, self.sdk_json, self.also = examples, sdk_json, also
        width = max((len(str(each.name)) for each in self.arguments), default=0)
        texts = [f"{str(each.name).upper():<{width}}  {each.help}" for each in self.arguments if each.help]
        parts = [
            inspect.cleandoc(self.help or ""),
            "\n".join(["\b", *texts]) if texts else "",
            f"Also: {', '.join(also)}." if also else "",
            f"Exit code: {exit_codes}." if exit_codes else "",
        ]
        self.help = "\n\n".join(filter(None, parts))

    def visible_examples(self, ctx: click.Context) -> Sequence[str]:
        local = [f"--{each.name}" for each in self.params if isinstance(each, LocalOption)]
        is_local = program_of(ctx).sdk_json and local
        return [line for line in self.examples if not (is_local and set(local) & set(line.split()))]

    def invoke(self, ctx: click.Context) -> Any:
        """Find out which service is meant, and run the function; return the exit code."""
        program, before = program_of(ctx), ctx.ensure_object(dict)
        as_json = ctx.params["as_json"] or before.get("as_json") or wants_json((), program.environment)
        as_json = as_json or (program.sdk_json and self.sdk_json)
        call = CommandCall(program, service_options(before, ctx.params), as_json)
        try:
            with report_as_json(as_json, sys.stdout, one_line=ctx.params.get("follow", False)):
                return self._run(call, {n: v for n, v in ctx.params.items() if n not in _REQUEST_OPTIONS})
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)

    def _run(self, call: CommandCall, params: Params) -> Any:
        assert self.callback is not None, "the decorated function"
        try:
            return self.callback(call, **params)
        except RefusedError as error:
            is_wrong_name = call.client is not None and error.http_status in _NAME_ERROR_CODES
            hint = self._name_hint(call.service, params, listed=error.lists_names) if is_wrong_name else ""
            raise RefusedError(f"{error}{hint}", error.http_status, error.kind) from error
        except UnreachableError as error:  # the scheduler of a local run exits with its job
            service = call.client
            if service is None or service.run is None:
                raise
            result = service.run.result()
            why = f"has ended: {result['verdict']}: {result['reason']}" if result else "is ending"
            see = f"{call.program.name} history show {service.name}"
            raise UnreachableError(f"{service.name} {why}; see: {see}") from error

    def _name_hint(self, service: ServiceClient, params: Params, *, listed: bool) -> str:
        for each in self.arguments:
            value = params.get(str(each.name)) or ()
            for name in (value,) if isinstance(value, str) else value:
                if isinstance(each.type, Name) and (hint := each.type.hint(service, name, params, listed=listed)):
                    return hint
        return ""


#: Parameters that select the service and the output.
_REQUEST_OPTIONS = ("service", "name", "url", "token", "as_json")
#: All commands of a service, with their groups.
COMMANDS = Group()


def group(words: str, help_text: str, *examples: str, hidden: bool = False, default: str = "") -> None:
    """Add a group, such as `plan`; it must be declared before its commands."""
    *above, name = words.split()
    made = Group(name, help=help_text, hidden=hidden)
    made.examples, made.default = examples, default
    _group_of(above).add_command(made)


def _group_of(words: Sequence[str]) -> click.Group:
    parent: Any = COMMANDS
    for word in words:
        parent = parent.commands[word]
    assert isinstance(parent, click.Group), f"{words} is a group"
    return parent


def command(words: str, *also: str, examples: Sequence[str] = (), **settings: Any) -> Callable[[Any], ServiceCommand]:
    """Declare a command, such as `plan status`; `also`: further, hidden spellings.

    `examples`: arguments for each example in the help; by default the examples of the declared arguments.
    """

    def decorate(function: Callable[..., int | None]) -> ServiceCommand:
        *above, name = words.split()
        made = click.command(name, cls=ServiceCommand, also=also, **settings)(function)
        required = " ".join(each.example for each in made.arguments if each.required)
        every = " ".join(each.example for each in made.arguments)
        made.examples = [f"{words} {line}".rstrip() for line in examples or dict.fromkeys((required, every))]
        _group_of(above).add_command(made)
        for spelling in also:
            *above, name = spelling.split()
            alias = copy(made)
            alias.name, alias.hidden = name, True
            _group_of(above).add_command(alias)
        return made

    return decorate


# Modules that do not import each other declare commands of this group.
group("debug", "Show offer decisions.", "debug offers")


def show_names(names: Sequence[str]) -> Renderable:
    """Render a list of names, one per line."""
    return names


def show_json(document: Any) -> Renderable:
    """Render a document as indented JSON."""
    return (json.dumps(document, indent=2),)


def show_message(answer: Any) -> Renderable:
    """Render the message in the scheduler's answer to a command."""
    return (str(answer.get("message", "done")),)


#: Same as the option `--name`.
service_argument = argument("service", required=False, help="Name of the service.", example="mnist")
yes_option = click.option("-y", "--yes", is_flag=True, help="Skip the confirmation.")


def echo(text: object, *, err: bool = False, nl: bool = True) -> None:
    """Print text without the terminal's commands, which files of others may contain."""
    click.echo(remove_controls(str(text)), err=err, nl=nl)


def print_error(text: str) -> None:
    """Print to standard error; do not fail if it is closed or its disk is full."""
    with suppress(OSError):
        echo(text, err=True)
