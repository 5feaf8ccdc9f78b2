"""Notes of where services run on this machine."""

import os
import subprocess
import sys

import pytest

from tf_scheduler.cli.local_run.process import Advertisement, advertise, advertisements


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "dcos-tensorflow" / "services"


def test_a_note_lives_as_long_as_its_block(home):
    """Nothing is left of it."""
    with advertise("digits") as tell:
        assert [] == advertisements()
        tell("http://127.0.0.1:31000")
        assert [Advertisement("http://127.0.0.1:31000", "digits")] == advertisements()
    assert [] == advertisements()
    assert [] == list(home.iterdir())


def test_a_scheduler_that_moves_is_found_where_it_is():
    """The new URL is shorter."""
    with advertise("digits") as tell:
        tell("http://127.0.0.1:31000")
        tell("http://127.0.0.1:99")
        tell("http://127.0.0.1:99")
        assert [Advertisement("http://127.0.0.1:99", "digits")] == advertisements()


def test_several_services_are_found():
    """Each has a note of its own."""
    with advertise("one") as first, advertise("two", "/cluster/services/two") as second:
        first("http://127.0.0.1:1")
        second("http://127.0.0.1:2")
        assert {
            Advertisement("http://127.0.0.1:1", "one"),
            Advertisement("http://127.0.0.1:2", "two", "/cluster/services/two"),
        } == set(advertisements())


def test_the_note_of_a_killed_process_is_gone(home):
    """It could not remove it; whoever reads it does."""
    program = (
        "import os, signal\nfrom tf_scheduler.cli.local_run.process import advertise\n"
        "with advertise('digits') as tell:\n    tell('http://127.0.0.1:1')\n    os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=False)

    assert 1 == len(list(home.iterdir()))
    assert [] == advertisements()
    assert [] == list(home.iterdir())


def test_what_is_no_note_is_no_service(home):
    """Nobody writes it, so it goes."""
    home.mkdir(parents=True)
    (home / "x.json").write_text("{")

    assert [] == advertisements()
