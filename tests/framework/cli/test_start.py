"""The command while it starts and exits."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dcos_command.command import LazyGroup
from kit.commands import ENVIRONMENT, command_line, run_program
from tf_scheduler.cli.main import cli

assert isinstance(cli, LazyGroup)

FULL = Path("/dev/full")
#: Ctrl-C, when the module named first is loaded.
INTERRUPTED = """
import os, signal, sys

wanted = sys.argv.pop(1)

class Finder:
    def find_spec(self, name, path, target=None):
        if name == wanted:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
from tf_scheduler.cli.start import main
main()
"""


def python(*arguments, **options):
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=ENVIRONMENT, text=True, stderr=subprocess.PIPE, check=False, **options)


@pytest.mark.parametrize(
    ("module", "code"), [("tf_scheduler.cli.main", -signal.SIGINT), ("tf_scheduler.cli.commands.options", 130)]
)
def test_ctrl_c_while_modules_load_is_quiet(module: str, code: int) -> None:
    """It exits by the signal, which shells report as 130, or with that code."""
    ended = python("-c", INTERRUPTED, module, "options", "schema", stdout=subprocess.DEVNULL)

    assert (code, "") == (ended.returncode, ended.stderr.strip())


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_help_loads_few_modules(option: str) -> None:
    """It answers at once: the scheduler, rich and HTTP take most of the time."""
    ended = python("-X", "importtime", "-m", "tf_scheduler", option, stdout=subprocess.DEVNULL)

    loaded = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    slow = {"http.client", "marshmallow", "rich.console", "dcos_command.client", "tf_scheduler.model.state"}
    assert (0, True) == (ended.returncode, "dcos_command.command" in loaded)
    assert set() == slow & loaded


@pytest.mark.parametrize("name", sorted(cli.later))
def test_each_command_loads_alone(name: str) -> None:
    """It may not need what another command has imported."""
    ended = python("-m", "tf_scheduler", name, "--help", stdout=subprocess.DEVNULL)

    assert (0, "") == (ended.returncode, ended.stderr)


def test_short_name_does_the_same() -> None:
    """Usage and completion have the name that was called."""
    program = Path(sys.executable).with_name("dtf")

    assert run_program(program, "--version").stdout == run_program(*command_line("--version")).stdout
    assert run_program(program, "history", "--help").stdout.startswith("Usage: dtf history ")
    script = run_program(program, env={**ENVIRONMENT, "_DTF_COMPLETE": "bash_source"}).stdout
    assert "_DTF_COMPLETE=bash_complete" in script


@pytest.mark.skipif(not FULL.exists(), reason="/dev/full does not exist")
def test_unwritable_output_is_reported_once(full) -> None:
    """And not again when Python exits."""
    ended = python("-m", "tf_scheduler", "options", "schema", stdout=full)

    assert (1, "standard output: No space left on device\n") == (ended.returncode, ended.stderr)


def test_closed_pipe_is_success(closed) -> None:
    """As in `... | head -1`."""
    ended = python("-m", "tf_scheduler", "options", "schema", stdout=closed)

    assert (0, "") == (ended.returncode, ended.stderr)


@pytest.fixture
def full():
    """A file on a full disk."""
    with FULL.open("w") as file:
        yield file


def test_closed_standard_output_keeps_exit_code() -> None:
    """As in `... >&-`, here with an address without a server."""
    script = f'"{sys.executable}" -m tf_scheduler --url http://127.0.0.1:1 plan list >&-'
    ended = run_program("sh", "-c", script, env=ENVIRONMENT)

    assert (3, True) == (ended.returncode, ended.stderr.startswith("http://127.0.0.1:1"))


@pytest.mark.parametrize(
    "output",
    ["closed", pytest.param("full", marks=pytest.mark.skipif(not FULL.exists(), reason="/dev/full does not exist"))],
)
def test_unwritten_error_keeps_exit_code(request: pytest.FixtureRequest, output: str) -> None:
    """3, no answer: a scheduler whose log is on the disk of its state exits so."""
    stream = request.getfixturevalue(output)
    command = command_line("--url", "http://127.0.0.1:1", "plan", "list")

    assert 3 == subprocess.run(command, env=ENVIRONMENT, stdout=stream, stderr=stream, check=False).returncode
