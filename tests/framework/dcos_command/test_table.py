"""The table of commands."""

import re
from pathlib import Path

import pytest

from dcos_command.arguments import parser
from dcos_command.kinds import _COMMANDS
from dcos_command.table import COMMANDS, GROUPS

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "cli.md").read_text()
PARSER = parser()
ROWS = [line.split(" | ")[0] for line in PAGE.splitlines() if line.startswith("| `")]


def test_no_words_mean_two_things():
    """Also no other words."""
    spelled = [words for command in COMMANDS for words in command.spellings]

    assert len(set(spelled)) == len(spelled)
    assert {" ".join(words[:depth]) for words in spelled for depth in range(1, len(words))} == set(GROUPS)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.words)
def test_every_command_is_told_and_can_be_typed(command):
    """In docs/cli.md with all of its words; by every way to say it, with what it requires."""
    words = command.words.split()
    assert any(row.startswith(f"| `{words[0]}") and re.search(rf"\b{words[-1]}\b", row) for row in ROWS), "docs/cli.md"
    required = ["x" for argument in command.arguments if argument.required]
    for spelling in command.spellings:
        assert command is PARSER.parse_args([*spelling, *required]).command
    assert {argument.kind for argument in command.arguments} - {""} <= set(_COMMANDS)
