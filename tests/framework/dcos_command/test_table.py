"""The table of commands."""

import re
from pathlib import Path

import click
import pytest

from dcos_command.execute import _LIST_COMMANDS, COMMANDS, GROUPS
from dcos_command.main import Group
from tf_scheduler.cli.main import cli

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "cli.md").read_text()
ROWS = [line.split(" | ")[0] for line in PAGE.splitlines() if line.startswith("| `")]


def test_no_words_mean_two_things():
    """Also no other words."""
    spelled = [words for command in COMMANDS for words in command.spellings]

    assert len(set(spelled)) == len(spelled)
    assert {" ".join(words[:depth]) for words in spelled for depth in range(1, len(words))} == set(GROUPS)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.words)
def test_every_command_is_documented_and_spelled(command):
    """docs/cli.md lists it, and each of its spellings is a command."""
    words = command.words.split()
    assert any(row.startswith(f"| `{words[0]}") and re.search(rf"\b{words[-1]}\b", row) for row in ROWS), "docs/cli.md"
    for spelling in command.spellings:
        found = cli
        for word in spelling:
            assert isinstance(found, Group)
            found = found.get_command(click.Context(found), word)
        assert len(command.arguments) == sum(isinstance(each, click.Argument) for each in found.params)
    assert {argument.kind for argument in command.arguments} - {""} <= set(_LIST_COMMANDS)
