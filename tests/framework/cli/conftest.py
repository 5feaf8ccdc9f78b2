"""A user at the command line: starts commands, waits for them, and leaves nothing behind."""

import os
import subprocess
import sys

import pytest

from jobs import PATIENCE


@pytest.fixture
def home(tmp_path):
    """State and cache of this test only; the cache of what is downloaded and built is the user's."""
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "NO_COLOR": "1"}


@pytest.fixture
def start(home):
    """Start the command; whatever is left of it at the end of the test is killed by its id."""
    processes = []

    def launch(*arguments):
        command = [sys.executable, "-m", "tf_scheduler", *map(str, arguments)]
        process = subprocess.Popen(
            command, env=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        processes.append(process)
        return process

    yield launch
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def run(start):
    def finish(*arguments):
        process = start(*arguments)
        out, err = process.communicate(timeout=PATIENCE)
        return process.returncode, out, err

    return finish
