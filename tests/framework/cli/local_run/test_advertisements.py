"""Advertisements of the services of this machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tf_scheduler.cli.local_run.advertisements import Advertisement, advertise, advertisements


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "dcos-tensorflow" / "services"


def test_advertisement_ends_with_its_block(home: Path) -> None:
    with advertise("digits") as publish:
        assert [] == advertisements()
        publish("http://127.0.0.1:31000")
        assert [Advertisement("http://127.0.0.1:31000", "digits")] == advertisements()
    assert [] == advertisements()
    assert [] == list(home.iterdir())


def test_advertised_url_can_change() -> None:
    """The new URL is shorter."""
    with advertise("digits") as publish:
        publish("http://127.0.0.1:31000")
        publish("http://127.0.0.1:99")
        publish("http://127.0.0.1:99")
        assert [Advertisement("http://127.0.0.1:99", "digits")] == advertisements()


def test_several_services_are_found() -> None:
    with advertise("one") as first, advertise("two", "/cluster/services/two") as second:
        first("http://127.0.0.1:1")
        second("http://127.0.0.1:2")
        assert {
            Advertisement("http://127.0.0.1:1", "one"),
            Advertisement("http://127.0.0.1:2", "two", "/cluster/services/two"),
        } == set(advertisements())


def test_advertisement_of_killed_process_is_removed(home: Path) -> None:
    """By the next reader."""
    program = (
        "import os, signal\nfrom tf_scheduler.cli.local_run.advertisements import advertise\n"
        "with advertise('digits') as note:\n    note('http://127.0.0.1:1')\n    os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=False)

    assert 1 == len(list(home.iterdir()))
    assert [] == advertisements()
    assert [] == list(home.iterdir())


def test_invalid_advertisement_is_ignored(home: Path) -> None:
    home.mkdir(parents=True)
    (home / "x.json").write_text("{")

    assert [] == advertisements()
