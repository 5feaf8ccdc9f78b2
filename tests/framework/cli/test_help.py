"""Help of `dcos-tensorflow` and its commands."""

import inspect
import re
from pathlib import Path

import click
import pytest

from dcos_command.command import COMMANDS as DECLARED
from dcos_command.command import HELP_SECTIONS, Name, ServiceCommand
from dcos_command.main import root_group
from generate_docs import commands, exit_codes
from tf_scheduler.cli.local_run.discovery import SERVICE_PROGRAM
from tf_scheduler.cli.main import cli

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
    shared = {words: exit_codes(command) for words, command in commands(root_group(SERVICE_PROGRAM))}

    assert exit_codes(cli).startswith(exit_codes(root_group(SERVICE_PROGRAM)))
    assert {words: local[words] for words in shared} == shared


def test_help_describes_own_exit_codes() -> None:
    """Each command that computes an exit code, or has a time limit."""
    own = re.compile(r"sys\.exit\(|_code\(|, int\(")
    computed = {" ".join(words) for words, each in COMMANDS if own.search(inspect.getsource(each.callback or commands))}

    assert {"result", "wait", "health", "exec", "progress", "doctor", "local run"} <= computed
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


@pytest.mark.parametrize("root", [cli, root_group(SERVICE_PROGRAM)], ids=["dcos-tensorflow", "dcos tensorflow"])
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
