"""Help of `dcos-tensorflow` and its commands."""

import inspect
import re

import click
import pytest

from dcos_command.main import HELP_SECTIONS
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


def test_root_help_has_each_command_in_one_section() -> None:
    listed = [name for names in HELP_SECTIONS.values() for name in names]

    assert sorted(words[0] for words, _ in COMMANDS if len(words) == 1) == sorted(listed)


@pytest.mark.parametrize("command", [command for _, command in LOCAL], ids=[" ".join(words) for words, _ in LOCAL])
def test_help_is_short_and_has_examples(command) -> None:
    """The first line has up to 60 characters; groups need no examples."""
    text = inspect.cleandoc(command.help or "")
    assert len(text.splitlines()[0]) <= 60
    assert isinstance(command, click.Group) or "Examples:" in text


GROUPS = [(words, command) for words, command in [(("root",), cli), *COMMANDS] if isinstance(command, click.Group)]


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
