"""Help of `dcos-tensorflow` and its commands."""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest

from dcos_command.command import COMMANDS as DECLARED
from dcos_command.command import HELP_SECTIONS, LazyGroup, Name, ServiceCommand
from dcos_command.main import root_group
from generate_docs import commands, exit_codes
from tf_scheduler.cli.commands.local import local
from tf_scheduler.cli.main import cli

assert isinstance(cli, LazyGroup)
assert cli.program is not None
#: `dcos tensorflow`.
DCOS = root_group(cli.program)

COMMANDS = list(commands(cli))
#: Commands of `dcos-tensorflow` alone; `dcos tensorflow` has the others, too.
LOCAL = [pair for pair in COMMANDS if getattr(pair[1].callback, "__module__", "").startswith("tf_scheduler.")]
#: Commands of both programs.
SERVICE = [(words, command) for words, command in commands(DECLARED) if isinstance(command, ServiceCommand)]
REFERENCE = (Path(__file__).parents[3] / "docs" / "reference" / "cli.md").read_text()


def help_of(words, command: click.Command, root: click.Group = cli) -> str:
    """Return what `--help` prints."""
    context = click.Context(root, info_name=root.name)
    for word in words[:-1]:
        above = context.command
        assert isinstance(above, click.Group)
        context = click.Context(above.get_command(context, word), context, info_name=word)
    return command.get_help(click.Context(command, context, info_name=words[-1]) if words else context)


def test_both_programs_describe_the_same_exit_codes() -> None:
    """Scripts rely on them; docs/reference/cli.md has those of `dcos-tensorflow`."""
    local = {words: exit_codes(command) for words, command in COMMANDS}
    shared = {words: exit_codes(command) for words, command in commands(DCOS)}

    assert exit_codes(cli).startswith(exit_codes(DCOS))
    assert {words: local[words] for words in shared} == shared


def computes_exit_code(function: Callable[..., Any]) -> bool:
    """Whether a command can exit with another code than 0 without an error."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "sys.exit"]
    returned = [node.value for node in ast.walk(tree) if isinstance(node, ast.Return)]
    return bool(calls) or not all(is_zero(value, vars(inspect.getmodule(function))) for value in returned)


def is_zero(value: ast.expr | None, names: Mapping[str, Any]) -> bool:
    """Whether a returned value is always 0, as of show() and follow() without a code."""
    match value:
        case None | ast.Constant(value=None | 0):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name("call"), attr="show" | "follow"), args=[_, _], keywords=[]):
            return True
        case ast.Call(func=ast.Name(name)) if name in names:
            return not computes_exit_code(names[name])
    return False


def test_help_describes_own_exit_codes() -> None:
    """Each command that computes one."""
    computed = {" ".join(words) for words, each in COMMANDS if each.callback and computes_exit_code(each.callback)}

    assert {"result", "wait", "health", "exec", "progress", "list", "doctor", "local run"} <= computed
    assert computed <= {" ".join(words) for words, each in COMMANDS if exit_codes(each)}


def hidden(group: click.Group, above: str = ""):
    """Yield the words and the command of each hidden spelling."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from hidden(command, f"{above}{name} ")
        elif command.hidden:
            yield f"{above}{name}", command


def test_hidden_spellings_are_those_of_the_commands() -> None:
    spelled = [words for _, command in SERVICE for words in command.also]

    assert len(set(spelled)) == len(spelled)
    assert {words: command.callback for words, command in hidden(DECLARED)} == {
        words: command.callback for _, command in SERVICE for words in command.also
    }


def test_no_command_replaces_another_one() -> None:
    """A second declaration of the same words would."""
    modules = [module for name, module in sys.modules.items() if name.startswith("dcos_command.")]
    made = {value for module in modules for value in vars(module).values() if isinstance(value, ServiceCommand)}

    assert len(made) > 40
    assert set() == made - {command for _, command in SERVICE}


def groups(group: click.Group, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield (*above, name)
            yield from groups(command, (*above, name))


def test_every_group_has_a_command() -> None:
    spelled = [tuple(each.split()) for words, command in SERVICE for each in (" ".join(words), *command.also)]

    assert {words[:depth] for words in spelled for depth in range(1, len(words))} == set(groups(DECLARED))


@pytest.mark.parametrize("root", [cli, DCOS], ids=["dcos-tensorflow", "dcos tensorflow"])
@pytest.mark.parametrize(("words", "command"), SERVICE, ids=[" ".join(words) for words, _ in SERVICE])
def test_every_spelling_takes_the_same_arguments(words, command: ServiceCommand, root: click.Group) -> None:
    """A command of `dcos-tensorflow` alone may not take its place either."""
    for spelling in (words, *(each.split() for each in command.also)):
        found: click.Command | None = root
        for word in spelling:
            assert isinstance(found, click.Group)
            found = found.get_command(click.Context(found), word)
        assert found is not None, spelling
        assert len(command.arguments) == sum(isinstance(each, click.Argument) for each in found.params), spelling


@pytest.mark.parametrize(("words", "command"), SERVICE, ids=[" ".join(words) for words, _ in SERVICE])
def test_every_command_is_documented_in_cli_md(words, command: ServiceCommand) -> None:
    """And the commands that hints name exist."""
    rows = [line.split(" | ")[0] for line in REFERENCE.partition("## Exit codes")[0].splitlines() if line[:3] == "| `"]

    assert any(row.startswith(f"| `{words[0]}") and re.search(rf"\b{words[-1]}\b", row) for row in rows)
    for kind in (each.type for each in command.params if isinstance(each.type, Name)):
        assert tuple(kind.listing_of({"plan": "deploy"}).removesuffix(" deploy").split()) in dict(COMMANDS)


def test_root_help_has_each_command_in_one_section() -> None:
    listed = [name for names in HELP_SECTIONS.values() for name in names]

    assert sorted(words[0] for words, _ in COMMANDS if len(words) == 1) == sorted(listed)


@pytest.mark.parametrize("group", [cli, DCOS, local], ids=["dcos-tensorflow", "dcos tensorflow", "local"])
def test_listed_summaries_are_those_of_the_commands(group: LazyGroup) -> None:
    """Help lists the commands without an import of their modules."""
    listed = {name: each.summary for name, each in group.later.items() if each.summary}
    found = {words[0]: command.short_help for words, command in commands(group) if len(words) == 1}

    assert listed == {name: found[name] for name in listed}


@pytest.mark.parametrize(("words", "command"), SERVICE, ids=[" ".join(words) for words, _ in SERVICE])
def test_help_of_a_service_command_is_brief(words, command: ServiceCommand) -> None:
    """Lines of up to 60 characters, and command lines that can be copied."""
    lines = [each.help for each in command.params if isinstance(each, click.Option)]

    assert 60 >= max(map(len, (command.help.splitlines()[0], *lines)))
    assert f"Examples:\n    dcos-tensorflow {' '.join(words)}" in help_of(words, command)


@pytest.mark.parametrize("command", [command for _, command in LOCAL], ids=[" ".join(words) for words, _ in LOCAL])
def test_help_is_short_and_has_examples(command) -> None:
    """The first line has up to 60 characters."""
    text = inspect.cleandoc(command.help or "")
    assert len(text.splitlines()[0]) <= 60
    assert "Examples:" in text


GROUPS = [(words, command) for words, command in [(("root",), cli), *COMMANDS] if isinstance(command, click.Group)]


@pytest.mark.parametrize("root", [cli, DCOS], ids=["dcos-tensorflow", "dcos tensorflow"])
def test_help_of_groups_has_examples(root: click.Group) -> None:
    """Also of those from the table, and of the root."""
    groups = [pair for pair in [((), root), *commands(root)] if isinstance(pair[1], click.Group)]

    assert len(groups) >= 8
    assert [] == [words for words, group in groups if "Examples:\n    dcos" not in help_of(words, group, root)]


@pytest.mark.parametrize("group", [group for _, group in GROUPS], ids=[" ".join(words) for words, _ in GROUPS])
def test_narrow_help_is_wrapped_not_cut_off(group: click.Group) -> None:
    """On 60 columns; click itself ends lines in dots."""
    parent = None if group is cli else click.Context(cli)
    _usage, *lines = group.get_help(click.Context(group, parent, "x", max_content_width=60)).splitlines()

    assert [] == [line for line in lines if line.endswith("...")]


@pytest.mark.parametrize(
    "command", [command for _, command in COMMANDS], ids=[" ".join(words) for words, _ in COMMANDS]
)
def test_help_shows_ranges_in_words(command) -> None:
    """`1 to 1000`, not `1<=x<=1000`."""
    assert re.search(r"x[<>]|[<>]=?x", command.get_help(click.Context(command, click.Context(cli)))) is None
