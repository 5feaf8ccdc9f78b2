"""The scheduler's log as `local run` keeps and tells it."""

import pytest

from tf_scheduler.cli.scheduler_log import SchedulerLog

HEAD = "2026-01-31 12:00:00,000 INFO"


@pytest.fixture
def sandbox(tmp_path):
    def make(name, text):
        (tmp_path / name).mkdir(exist_ok=True)
        with (tmp_path / name / "stderr").open("a") as log:
            log.write(text)
        return tmp_path / name

    return make


def test_messages_of_ours_are_told_and_everything_is_kept(sandbox, tmp_path, capsys):
    """Without their heads; lines that go on belong to the message before."""
    text = (
        f"{HEAD} tf_scheduler.runner: a task\nthat failed\n"
        f"{HEAD} uvicorn.error: Started\nmore of it\n"
        f"{HEAD} mesos_client.subscriber: connected\n"
    )
    log = SchedulerLog(tmp_path / "kept", console=True)

    log.read(sandbox("one", text))

    assert "a task\nthat failed\nconnected\n" == capsys.readouterr().err
    assert text == (tmp_path / "kept").read_text()
    assert "connected" == log.last_line


def test_what_a_line_is_about_is_not_told_in_either_form(sandbox, tmp_path, capsys):
    """It is in the file that is kept."""
    console = f"{HEAD} tf_scheduler.runner: worker-0 is [up] [task=worker-0 decision=Tick-1]\n    and well\n"
    program = '{"logger": "tf_scheduler.runner", "message": "worker-1 is up", "task": "worker-1"}\n'
    log = SchedulerLog(tmp_path / "kept", console=True)

    log.read(sandbox("one", console + program))

    assert "worker-0 is [up]\nand well\nworker-1 is up\n" == capsys.readouterr().err
    assert console + program == (tmp_path / "kept").read_text()


def test_half_a_line_waits_for_its_end(sandbox, tmp_path, capsys):
    """Also one that a scheduler leaves that was killed: it is told when the next one runs."""
    log = SchedulerLog(tmp_path / "kept", console=True)

    log.read(sandbox("one", f"{HEAD} tf_scheduler.runner: whole\n{HEAD} tf_sch"))
    assert "whole\n" == capsys.readouterr().err
    log.read(sandbox("one", "eduler.runner: and half"))
    assert "" == capsys.readouterr().err
    log.read(sandbox("two", f"{HEAD} tf_scheduler.runner: next\n"))

    assert "and half\nnext\n" == capsys.readouterr().err


def test_a_scheduler_that_logs_nothing_yet_is_no_trouble(tmp_path, capsys):
    """Its sandbox may not even be there."""
    log = SchedulerLog(tmp_path / "kept", console=False)

    log.read(None)
    log.read(tmp_path / "none")

    assert "" == log.last_line == capsys.readouterr().err
