"""The table of commands."""

import re
from pathlib import Path

import click
import pytest

from dcos_command.execute import COMMANDS, GROUPS, LIST_COMMANDS
from dcos_command.main import HELP_SECTIONS, Group
from tf_scheduler.cli.main import cli

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "cli.md").read_text().partition("## Exit codes")[0]
ROWS = [line.split(" | ")[0] for line in PAGE.splitlines() if line.startswith("| `")]


def test_spellings_are_unique() -> None:
    spelled = [words for command in COMMANDS for words in command.spellings]

    assert len(set(spelled)) == len(spelled)
    assert {" ".join(words[:depth]) for words in spelled for depth in range(1, len(words))} == set(GROUPS)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.words)
def test_every_command_is_documented_in_cli_md(command) -> None:
    """And each of its spellings is a command."""
    words = command.words.split()
    assert any(row.startswith(f"| `{words[0]}") and re.search(rf"\b{words[-1]}\b", row) for row in ROWS), (
        "docs/reference/cli.md"
    )
    for spelling in command.spellings:
        group: click.Command | None = cli
        for word in spelling:
            assert isinstance(group, Group)
            group = group.get_command(click.Context(group), word)
        assert len(command.arguments) == sum(isinstance(each, click.Argument) for each in group.params)
    assert {argument.kind for argument in command.arguments} - {""} <= set(LIST_COMMANDS)


def every_command(group, context):
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        below = click.Context(command, context, info_name=name)
        yield command, below
        if isinstance(command, Group):
            yield from every_command(command, below)


@pytest.mark.parametrize("words", [command.words for command in COMMANDS])
def test_help_of_a_command_is_brief_and_has_examples(words: str) -> None:
    """One line of up to 60 characters, and command lines that can be copied."""
    context = click.Context(cli, info_name="dcos-tensorflow")
    ((command, below),) = [
        each for each in every_command(cli, context) if each[1].command_path == f"dcos-tensorflow {words}"
    ]
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]

    assert 60 >= max(map(len, (command.help.splitlines()[0], *(option.help for option in options))))
    assert f"Examples:\n    dcos-tensorflow {words}" in command.get_help(below)


def test_top_level_help_has_every_command_in_a_section() -> None:
    """Train, Change, Inspect, Build."""
    sectioned = {name for section in HELP_SECTIONS.values() for name in section}
    context = click.Context(cli)

    assert {name for name in cli.list_commands(context) if not cli.get_command(context, name).hidden} == sectioned
