"""Help of `dcos-tensorflow` and its commands."""

import inspect
import re

import click
import pytest

from dcos_command.command import Command
from dcos_command.execute import COMMANDS as TABLE
from dcos_command.main import HELP_SECTIONS, root_group
from generate_docs import commands, exit_codes
from tf_scheduler.cli.local_run.discovery import SERVICE_PROGRAM
from tf_scheduler.cli.main import cli

COMMANDS = list(commands(cli))
#: Commands of `dcos-tensorflow` alone; `dcos tensorflow` has the others, too.
LOCAL = [pair for pair in COMMANDS if getattr(pair[1].callback, "__module__", "").startswith("tf_scheduler.")]


def test_both_programs_describe_the_same_exit_codes() -> None:
    """Scripts rely on them; docs/reference/cli.md has those of `dcos-tensorflow`."""
    local = {words: exit_codes(command) for words, command in COMMANDS}
    shared = {words: exit_codes(command) for words, command in commands(root_group(SERVICE_PROGRAM))}

    assert exit_codes(cli).startswith(exit_codes(root_group(SERVICE_PROGRAM)))
    assert {words: local[words] for words in shared} == shared


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
