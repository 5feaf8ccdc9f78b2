"""Help of `dcos-tensorflow` and its commands."""

import inspect
import re
from pathlib import Path

import click
import pytest

from dcos_command.command import Command
from dcos_command.execute import COMMANDS as TABLE
from dcos_command.main import HELP_SECTIONS, root_group
from tf_scheduler.cli.local_run.discovery import SERVICE_PROGRAM
from tf_scheduler.cli.main import cli


def commands(group, words=()):
    """Yield the words and the command, for each command below a group that help shows."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        if not command.hidden:
            yield (*words, name), command


COMMANDS = list(commands(cli))
#: Commands of `dcos-tensorflow` alone; `dcos tensorflow` has the others, too.
LOCAL = [pair for pair in COMMANDS if getattr(pair[1].callback, "__module__", "").startswith("tf_scheduler.")]


#: Exit codes of the help, and those of the table in docs/reference/cli.md.
_CODES, _ROW = (
    re.compile(r"Exit code: (.+?)\.(?:\n\n|$)", re.DOTALL),
    re.compile(r"^\| (`.+`) \| (.+) \|$", re.MULTILINE),
)


def exit_codes(command: click.Command) -> str:
    """Return the exit codes that the help of a command describes; empty: none."""
    match = _CODES.search(inspect.cleandoc(command.help or ""))
    return " ".join(match[1].split()) if match else ""


@pytest.mark.parametrize("root", [cli, root_group(SERVICE_PROGRAM)], ids=["dcos-tensorflow", "dcos tensorflow"])
def test_help_and_docs_agree_on_exit_codes(root: click.Group) -> None:
    """In both programs; scripts rely on them."""
    text = (
        (Path(__file__).parents[3] / "docs" / "reference" / "cli.md")
        .read_text()
        .partition("## Exit codes\n")[2]
        .partition("\n## ")[0]
    )
    rows = {name: codes for names, codes in _ROW.findall(text) for name in re.findall("`(.+?)`", names)}
    both = {" ".join(words): command for words, command in commands(root)}

    assert exit_codes(root).startswith(re.search(r"\| every command \| (.+) \|", text)[1])
    assert {name: codes for name, codes in rows.items() if root is cli or name in both} == {
        name: codes for name, command in both.items() if (codes := exit_codes(command))
    }


def test_help_describes_own_exit_codes() -> None:
    """Each command that computes an exit code, or has a time limit."""
    table = {each.words for each in TABLE if each.exit_code is not Command.exit_code}
    local = {" ".join(words) for words, each in LOCAL if "sys.exit(" in inspect.getsource(each.callback)}

    assert {"result", "wait"} <= table
    assert {"doctor", "local run"} <= local
    assert table | local <= {" ".join(words) for words, each in COMMANDS if exit_codes(each)}


def test_root_help_has_each_command_in_one_section() -> None:
    listed = [name for names in HELP_SECTIONS.values() for name in names]

    assert sorted(words[0] for words, _ in COMMANDS if len(words) == 1) == sorted(listed)


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
    groups = [command for _, command in [((), root), *commands(root)] if isinstance(command, click.Group)]

    assert len(groups) >= 8
    assert [] == [group.name for group in groups if "Examples:\n  dcos" not in inspect.cleandoc(group.help)]


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
    assert re.search(r"x[<>]|[<>]=?x", command.get_help(click.Context(command))) is None
